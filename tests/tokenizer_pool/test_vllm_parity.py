"""Our ids against those of vLLM's own request models and renderer, in vLLM's own environment.

No engine runs: `vllm_oracle.py` calls the renderer's functions. Needs `python -m
bench.vllm_env`; more tokenizers than the two there are taken from FOREBAY_PARITY_TOKENIZERS, a
colon-separated list of directories.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.vllm_env.layout import locate
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


def compare(directory: Path, cache: Path, count: int = 400) -> Counter[str]:
    """How our ids for so many conversations stand to those of vLLM's own code."""
    artifact = asyncio.run(artifact_path(TokenizerSource("m", directory), cache, limit=300))
    model = load_model("m", artifact, on_loop=False)
    with oracle(directory) as process:
        return Counter(
            outcome(model, request, ask(process, request)) for request in corpus(11, count)
        )


@pytest.mark.parametrize("name", ["embedded", "smollm2", "tiny", *EXTRA])
def test_what_travels_as_ids_is_what_vllm_would_compute(name: str, tmp_path: Path) -> None:
    layout = locate()
    assert layout.ready, "no vLLM environment: run python3 -m bench.vllm_env"
    known = {"embedded": EMBEDDED, "smollm2": layout.smollm2, "tiny": layout.tiny}
    counts = compare(known.get(name, Path(name)), tmp_path)
    assert set(counts) <= {"equal", "text", "both refuse"}, counts
    assert counts["equal"] >= 40, counts


def main() -> None:
    """`python -m tests.tokenizer_pool.test_vllm_parity DIR…`: the table of the results."""
    print("| tokenizer | equal ids | as text | both refuse | different |")
    print("| --- | --- | --- | --- | --- |")
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as cache:
            counts = compare(Path(name), Path(cache))
        known = [counts.pop(outcome, 0) for outcome in ("equal", "text", "both refuse")]
        print(f"| {name} | {' | '.join(map(str, [*known, sum(counts.values())]))} |", flush=True)
        for difference in list(counts)[:3]:
            print(difference[:300], file=sys.stderr)


if __name__ == "__main__":
    main()
