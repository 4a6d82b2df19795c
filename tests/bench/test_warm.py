"""The warm gate makes the first request of a cold engine as good as a later one."""

from pathlib import Path

import pytest

from bench.warm.command import COLD_MS, simulated
from bench.warm.measure import measure

pytestmark = pytest.mark.slow


async def test_the_first_request_behind_the_gate_does_not_pay_for_the_start(tmp_path: Path) -> None:
    report = await measure(simulated(), 1, tmp_path)
    found = report.summary
    assert found["cold_ms"] >= COLD_MS
    assert found["cold_over_gated"] >= 3
    assert found["gated_ms"] < COLD_MS / 3
    assert 0 < found["gated_later_ms"] < COLD_MS / 3
    assert found["warm_floor_ms"] < COLD_MS / 3
    assert found["warm_up_prompt_tokens"] > 1000
