"""What the load generator itself adds: the ruler it is held against, and the figures made of it."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.load.ruler import RulerFailed, ttfts
from bench.load.selfcheck import Turn, summarise
from bench.load.target import Target
from tests.bench.conftest import Fake, make_fake


def turn(way: str, p50: float, **more: float) -> Turn:
    return Turn(way, {"p50": p50, "p99": 2 * p50}, **more)


def test_what_is_added_is_over_the_ruler_of_the_same_round():
    rounds = [(0.1, 0.15, 0.2, 0.5), (1.0, 1.07, 2.0, 2.2), (0.1, 0.16, 0.3, 0.4)]
    turns = [
        turn(way, p50, cpu_us_per_request=p50 * 100, lateness_ms_p99=p50)
        for each in rounds
        for way, p50 in zip(("ruler", "closed", "paced", "open"), each, strict=True)
    ]
    found = summarise(turns)
    assert found["closed_added_ms_p50"] == pytest.approx(0.06)
    assert found["open_added_ms_p50"] == pytest.approx(0.2)
    assert found["ruler_ttft_ms_p50"] == 0.1
    assert found["open_cpu_us_per_request"] == 50.0
    assert found["open_lateness_ms_p99"] == 0.5


async def test_the_ruler_measures_from_sending_to_the_first_event():
    async with make_fake() as fake:  # 0.1 ms a token
        target = Target(fake.server.url, "forebay-demo")
        body = target.body(["word " * 600], 3)
        found = await asyncio.to_thread(ttfts, target, [body, body])
    assert len(found) == 2
    assert 0.06 < found[0] < 1.0
    # In the prefix cache by then.
    assert found[1] < found[0]


@pytest.mark.slow
async def test_the_ruler_refuses_what_is_no_stream(fake: Fake):
    for model, output in (("other", 3), ("forebay-demo", 3)):
        target = Target(fake.server.url, model, stream=model == "other")
        with pytest.raises(RulerFailed):
            await asyncio.to_thread(ttfts, target, [target.body(["Hello"], output) + b"  "])


def test_the_command_writes_what_it_found(tmp_path: Path):
    file = tmp_path / "r.json"
    flags = ["--rounds", "1", "--requests", "30", "--rate", "300", "--json", str(file)]
    ended = CliRunner().invoke(app, ["selfcheck", *flags])
    summary = json.loads(file.read_text())["summary"]
    assert 0 < summary["ruler_ttft_ms_p50"] < 20
    assert 0 < summary["closed_ttft_ms_p50"] < 20
    assert summary["closed_cpu_us_per_request"] > 0
    assert ended.exit_code == (summary["closed_added_ms_p50"] > 0.1)
