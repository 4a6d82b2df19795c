"""One timer for the deadlines of all of a backend's streams.

A timer for each would cost every request its start and its cancellation, for deadlines of seconds
that are hardly ever missed. Here a stream only says when it wants to be looked at, and the timer is
moved only when that is earlier than all others: exact, and no work for a stream that ends in time.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from backends.stream import Stream

SHORTEST = 0.005
"""Seconds between two looks: many streams that are due one after the other cost no more timers."""


class Deadlines:
    """Looks at the streams that `under_way` yields, when the earliest of them is due."""

    def __init__(self, under_way: Callable[[], Iterable[Stream]]) -> None:
        self._under_way = under_way
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def watch(self, at: float) -> None:
        """There is a stream to look at by `at`, on the event loop's clock."""
        if at < self._at:
            self.stop()
            self._at = at
            self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, inf

    def _look(self) -> None:
        self._timer, self._at = None, inf
        now = asyncio.get_running_loop().time()
        looks = [stream.look(now) for stream in list(self._under_way())]
        if looks:
            self.watch(max(min(looks), now + SHORTEST))
