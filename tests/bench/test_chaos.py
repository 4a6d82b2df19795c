"""The chaos run counts what it says, and a gateway under it leaves nothing behind."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest
from typer.testing import CliRunner

from backends.managed.node import ManagedNode
from bench.__main__ import app
from bench.chaos.client import judge_stream
from bench.chaos.command import NONE_OF_THESE
from bench.chaos.fleet import simulated
from bench.chaos.leaving import PHASES, measure_leaving
from bench.chaos.measure import Chaos, measure
from bench.chaos.mischief import KINDS, TO_ANY_PROCESS, Mischief
from bench.engine import SERIAL
from bench.idle.command import given
from tests.bench.conftest import make_fake
from tests.bench.waiting import reaches

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
    chaos = Chaos(requests=100, concurrency=20, every=0.12, looks=3)
    report = await measure(chaos, simulated(3), tmp_path)
    assert report.summary["requests"] == 100
    left = {what: report.summary[what] for what in NONE_OF_THESE if report.summary[what]}
    assert left == {}, report.detail
    assert report.summary["whole"] > 30
    done = report.detail["troubles"]
    assert report.summary["troubles"] >= 10
    assert len(done) >= len(KINDS) - 2, f"of every kind, but for chance: {done}"


@pytest.mark.slow
async def test_engines_that_cannot_be_told_to_do_wrong_are_killed_and_frozen() -> None:
    fleet = replace(simulated(2), kinds=TO_ANY_PROCESS)
    assert not fleet.obeys
    managed = replace(fleet.managed, backoff_first=0.1, backoff_max=0.1)
    async with ManagedNode(fleet.plan, managed, lambda *_: None) as node:
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            mischief = Mischief(node, http, fleet.kinds, Random(1))
            running = group.create_task(mischief.run(every=0.05))
            troubled = node.engines["engine-1"]
            await reaches(lambda: troubled.starts >= 3 and mischief.done["freeze"] > 0, within=20)
            running.cancel()
        assert node.engines["engine-0"].starts == 1, "one is left in peace"
    assert mischief.done.keys() == set(TO_ANY_PROCESS)


@pytest.mark.slow
async def test_clients_leave_a_given_server(tmp_path: Path) -> None:
    spec = replace(SERIAL, step_base=0.01)
    async with make_fake(engine=spec, model="theirs") as fake:
        plan = await given(fake.server.url, None, (), 1)
        report = await measure_leaving(plan, 8, tmp_path)
        generated = fake.server.app.engine.generated_tokens
    assert generated > 0
    for phase in PHASES:
        assert report.summary[f"{phase}_left"] + report.summary[f"{phase}_missed"] >= 8
        assert report.summary[f"{phase}_worst_s"] < 5
    assert report.summary["in_flight_end"] == 0


def test_a_server_that_chaos_did_not_start_is_not_killed() -> None:
    ended = CliRunner().invoke(app, ["chaos", "--backend", "http://127.0.0.1:1"])
    assert ended.exit_code == 2
    assert "leave --backend" in " ".join(ended.output.split())
