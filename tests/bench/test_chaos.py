"""The chaos run counts what it says, and a gateway under it leaves nothing behind."""

from pathlib import Path

import pytest

from bench.chaos.client import judge_stream
from bench.chaos.command import NONE_OF_THESE
from bench.chaos.measure import Chaos, measure
from bench.chaos.mischief import KINDS

CHUNK = b'data: {"choices": []}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"code": "backend_stream"}}\n\n'
STRANGE = b'data: {"error": {"code": "surprise"}}\n\n'


@pytest.mark.parametrize(
    ("data", "kind", "ends"),
    [
        (CHUNK + DONE, "whole", 1),
        (CHUNK + ERROR, "told", 1),
        (CHUNK + ERROR + DONE, "told", 1),  # as vLLM itself ends a stream that failed
        (CHUNK, "wrong", 0),
        (b"", "wrong", 0),
        (CHUNK + DONE + DONE, "wrong", 2),
        (CHUNK + DONE + CHUNK, "wrong", 1),
        (CHUNK + DONE + ERROR, "told", 2),
        (CHUNK + ERROR + ERROR, "told", 2),
        (CHUNK + STRANGE, "wrong", 1),
        (CHUNK + b'data: {"error"', "wrong", 1),
    ],
)
def test_what_a_stream_is_worth(data: bytes, kind: str, ends: int) -> None:
    verdict = judge_stream(data)
    assert (verdict.kind, verdict.ends) == (kind, ends)


@pytest.mark.slow
async def test_every_request_ends_once_and_nothing_is_left(tmp_path: Path) -> None:
    chaos = Chaos(requests=100, concurrency=20, engines=3, every=0.12, looks=3)
    report = await measure(chaos, tmp_path)
    assert report.summary["requests"] == 100
    left = {what: report.summary[what] for what in NONE_OF_THESE if report.summary[what]}
    assert left == {}, report.detail
    assert report.summary["whole"] > 30
    done = report.detail["troubles"]
    assert report.summary["troubles"] >= 10
    assert len(done) >= len(KINDS) - 2, f"of every kind, but for chance: {done}"
