"""Our ids against those of vLLM's own request models and renderer, in vLLM's own environment.

No engine runs: `vllm_oracle.py` calls the renderer's functions. Needs `python -m
scripts.vllm_env`; more tokenizers than the two there are taken from FOREBAY_PARITY_TOKENIZERS, a
colon-separated list of directories.
"""

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.vllm_env.layout import locate
from tests.tokenizer_pool.conftest import EMBEDDED
from tests.tokenizer_pool.requests_corpus import requests as corpus
from tokenizer_pool import requests
from tokenizer_pool.artifact import load_model
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.model import Model
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import Kind, TokenizerSource

pytestmark = pytest.mark.real_vllm

ORACLE = Path(__file__).with_name("vllm_oracle.py")
EXTRA = tuple(filter(None, os.environ.get("FOREBAY_PARITY_TOKENIZERS", "").split(":")))


@contextmanager
def oracle(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "PATH": os.environ["PATH"]}
    command = [str(locate().python), str(ORACLE), str(directory)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline()).strip() != "ready":
            assert line, "the oracle ended before it was ready"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(process: "subprocess.Popen[str]", request: dict[str, Any]) -> list[int] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    ids: list[int] | None = json.loads(process.stdout.readline()).get("ids")
    return ids


def outcome(model: Model, request: dict[str, Any], theirs: list[int] | None) -> str:
    """One word on how we did."""
    try:
        document = requests.parse(json.dumps(request).encode(), Kind.CHAT)
        prompt = model.prepare(Kind.CHAT, document)
    except InvalidRequest:
        return "both refuse" if theirs is None else "we refuse what vLLM takes"
    if prompt.ineligible is None:
        ours = json.loads(prompt.body(ids=True))["kv_transfer_params"]["prompt_token_ids"]
        return "equal" if ours == theirs else f"other ids: {json.dumps(request)}"
    if prompt.exact and theirs is not None and prompt.prompt_tokens != len(theirs):
        return f"other count: {json.dumps(request)}"
    return "text"


@pytest.mark.parametrize("name", ["embedded", "smollm2", "tiny", *EXTRA])
def test_what_travels_as_ids_is_what_vllm_would_compute(name: str, tmp_path: Path) -> None:
    layout = locate()
    assert layout.ready, "no vLLM environment: run python3 -m scripts.vllm_env"
    known = {"embedded": EMBEDDED, "smollm2": layout.smollm2, "tiny": layout.tiny}
    directory = known.get(name, Path(name))
    source = TokenizerSource("m", directory)
    artifact = asyncio.run(artifact_path(source, tmp_path, limit=300))
    model = load_model("m", artifact, on_loop=False)
    with oracle(directory) as process:
        counts = Counter(
            outcome(model, request, ask(process, request)) for request in corpus(11, 400)
        )
    assert set(counts) <= {"equal", "text", "both refuse"}, counts
    assert counts["equal"] >= 40, counts
