"""A time limit that counts only the time in which this process could have noticed success.

After our own event loop stood still (a long callback, a library that held the GIL, no CPU), timers
run before sockets are looked at: a plain time limit then fires although the answer lies ready in
the kernel, and a sound backend is called dead. Here the limit is waited for in slices, a slice in
which the loop was late does not count, and sockets get one look more before the end.

For limits that decide on a backend's health. Not for a stream's phases, whose limits are long.
"""

import asyncio
from time import monotonic
from types import TracebackType
from typing import Self

_SLICES = 4
_LATE = 0.1
"""A timer that fires so many seconds late tells of a stall; uvloop rounds to milliseconds."""
_LAST_LOOK = 0.02
_MOST = 4.0
"""However often the loop stalls, the end comes after so many times the limit."""


class Patience:
    """`async with Patience(seconds):` raises TimeoutError as `asyncio.timeout` does, but fairly."""

    def __init__(self, seconds: float) -> None:
        self._slice = seconds / _SLICES
        self._left = _SLICES
        self._latest = monotonic() + _MOST * seconds
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._wait(self._slice)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._tick, monotonic() + seconds)

    def _tick(self, due: float) -> None:
        now = monotonic()
        if now - due < _LATE:
            self._left -= 1
        if self._left < 0 or now >= self._latest:
            self._timeout.reschedule(self._loop.time())
        else:
            # The last look is short: what was ready is noticed within a turn or two of the loop.
            self._wait(self._slice if self._left else _LAST_LOOK)
