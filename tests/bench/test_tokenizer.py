"""The demo's tokenizer: what is committed is what the script makes, and everyone reads it alike."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "bench" / "data" / "tokenizer"
CORPUS = ROOT / "bench" / "data" / "corpus"

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What's the weather in Köln? <|im_end|> 12345 天气"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
        ],
    },
    {"role": "tool", "content": "18 degrees"},
    {"role": "user", "content": "Thanks!"},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": None}}]

WITH_TRANSFORMERS = """
import json, sys, warnings
warnings.simplefilter("ignore")
from transformers import AutoTokenizer
directory, messages, tools, text = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
print(json.dumps({
    "text": tokenizer(text, add_special_tokens=True)["input_ids"],
    "size": len(tokenizer),
    "eos": tokenizer.eos_token_id,
    "chat": tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False
    ),
    "rendered": tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, tokenize=False
    ),
}))
"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DIRECTORY / "tokenizer.json"))


def test_it_is_what_the_script_makes_of_the_corpus(tmp_path: Path):
    subprocess.run([sys.executable, ROOT / "scripts/train_tokenizer.py", tmp_path], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (DIRECTORY / name).read_bytes()


def test_transformers_reads_it_as_we_do(tokenizer: Tokenizer):
    text = (CORPUS / "conversation.txt").read_text() + " <|im_start|>user\n<tool_call> \u0065\u0301"
    said = subprocess.run(
        [sys.executable, "-c", WITH_TRANSFORMERS],
        input=json.dumps([str(DIRECTORY), MESSAGES, TOOLS, text]),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = json.loads(said)
    assert theirs["text"] == tokenizer.encode(text).ids
    assert theirs["chat"] == tokenizer.encode(theirs["rendered"]).ids
    assert theirs["size"] == tokenizer.get_vocab_size() == 8192
    assert theirs["eos"] == tokenizer.token_to_id("<|im_end|>")


def test_text_survives_the_round_trip(tokenizer: Tokenizer):
    text = (CORPUS / "conversation.txt").read_text()
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_whole_directory_is_small():
    assert sum(path.stat().st_size for path in DIRECTORY.iterdir()) < 1_000_000
