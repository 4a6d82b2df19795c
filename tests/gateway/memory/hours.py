"""An hour of readings, in virtual time."""

from dataclasses import replace

from backends.types import Load
from gateway.memory.usage import Usage

QUIET = Load("long-0", 0.0, running=0, waiting=0, kv_usage=0.0, preemptions=0, in_flight=0)
BUSY = replace(QUIET, running=8, kv_usage=0.7)


def hour(*phases: tuple[int, Load], seats: int = 16, usage: Usage | None = None) -> Usage:
    """So many seconds of each, a reading each second."""
    seen = Usage() if usage is None else usage
    for seconds, load in phases:
        for _ in range(seconds):
            seen.saw(load, seats)
    return seen.clear()
