"""Train the demo's tokenizer on the corpus in the repository: byte-level BPE, the same every time.

    python scripts/train_tokenizer.py [OUTPUT_DIR]

Writes tokenizer.json and tokenizer_config.json; the chat template beside them is written by hand.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

DATA = Path(__file__).resolve().parent.parent / "bench" / "data"
VOCABULARY = 8192
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>"]
"""One token each, but text: skipping special tokens keeps them, so that a parser sees them."""

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # a word with the space or sign before it
    r"|\p{N}"  # digits one by one
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"  # signs
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"  # line ends, then other space
)


def train(corpus: list[str]) -> Tokenizer:
    """A tokenizer of VOCABULARY entries, its special tokens first among the added ones."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(WORDS), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKUP),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in MARKUP])
    return tokenizer


def config() -> dict[str, object]:
    """What `transformers` needs beside tokenizer.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32768,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "tokenizer"
    corpus = [path.read_text() for path in sorted((DATA / "corpus").glob("*.txt"))]
    train(corpus).save(str(output / "tokenizer.json"), pretty=False)
    (output / "tokenizer_config.json").write_text(json.dumps(config(), indent=2) + "\n")


if __name__ == "__main__":
    main()
