"""An engine that is kept warm does not make a request pay for the silence before it."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.plans.model import Flag
from bench.demo import free_port
from bench.idle import measure as idle
from bench.idle.command import simulated

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
