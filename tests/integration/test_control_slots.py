"""Three gateways, as processes, before one backend: one of them is killed with -9."""

import pytest

from bench.control.command import SLOW_STEPS, slots_setup
from bench.control.fleet import fleet
from bench.control.slots import slots

pytestmark = pytest.mark.slow

LIMIT = 8
TTL = 3.0


async def test_slots_are_never_exceeded_and_those_of_the_dead_come_back() -> None:
    async with fleet(slots_setup(LIMIT, SLOW_STEPS)) as running:
        seen = await slots(running, "only", LIMIT, TTL + 1.5)
    assert seen["most_in_flight"] == LIMIT
    again = seen["all_slots_in_use_again_after_s"]
    assert again is not None
    assert again <= TTL + 1.0
