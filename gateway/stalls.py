"""How long the event loop keeps others waiting: a stall delays every stream of its process."""

import asyncio
from collections.abc import Callable
from time import monotonic

INTERVAL = 0.05
"""Seconds between looks: a stall of that length is not missed, and looking costs nothing."""

TIMER_ERROR = 0.001
"""uvloop's timers count whole milliseconds."""


async def watch(observe: Callable[[float], None]) -> None:
    """Tell how much later than asked each look came, in seconds, until cancelled."""
    while True:
        due = monotonic() + INTERVAL
        await asyncio.sleep(INTERVAL)
        observe(max(0.0, monotonic() - due - TIMER_ERROR))
