"""An engine that is kept warm does not make a request pay for the silence before it."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.plans.model import Flag
from bench.demo import free_port
from bench.engine import SERIAL
from bench.idle import measure as idle
from bench.idle.command import given, simulated
from tests.bench.conftest import make_fake

pytestmark = pytest.mark.slow

COOLS_AFTER, COLD_MS, IDLE = 1.5, 600, 2.5


async def test_idleness_costs_only_where_nothing_keeps_the_engine_warm(tmp_path: Path) -> None:
    plan = replace(simulated((IDLE,), 1), keep_after=0.5)
    flags = (Flag("cold-after", COOLS_AFTER, ""), Flag("cold-ms", COLD_MS, ""))
    engines = {way: replace(plan.engine, port=free_port(), flags=flags) for way in idle.WAYS}
    report = await idle.measure(plan, engines, tmp_path)
    found = report.summary
    assert found["cooling_2.5s_ms"] >= COLD_MS
    assert found["direct_2.5s_ms"] >= COLD_MS
    assert found["warm_2.5s_ms"] < COLD_MS / 2
    assert found["cooling_over_warm"] > 2
    assert found["keep_warm_prompt_tokens"] > 0, "warmth has its price, and it is told"


async def test_before_a_given_server_the_ways_take_turns(tmp_path: Path) -> None:
    cools = replace(SERIAL, prefill_per_token=1e-6, cold_after=1.0, cold_step=COLD_MS / 1e3)
    async with make_fake(engine=cools, model="theirs") as fake:
        plan = await given(fake.server.url, None, (1.5,), 1)
        engines = dict.fromkeys(idle.WAYS, plan.engine)
        report = await idle.measure(replace(plan, keep_after=0.3), engines, tmp_path)
    assert plan.model == "theirs"
    assert report.summary["warm_1.5s_ms"] < COLD_MS / 2
    assert report.summary["cooling_1.5s_ms"] >= COLD_MS
    assert report.summary["direct_1.5s_ms"] >= COLD_MS
