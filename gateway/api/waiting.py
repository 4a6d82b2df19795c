"""Keeps a stream open for a client whose request waits: an event-stream comment now and then.

Proxies cut connections that are silent for long. The price of the first comment is the head of
the answer: its status is 200 from then on, and an error that follows is an event.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final

from gateway.http_types import Request

HEADER: Final = b"x-forebay-keep-alive"
COMMENT: Final = b": waiting for an engine\n\n"
_SECONDS: Final = re.compile(r"\d{1,4}(\.\d{1,3})?")
LEAST: Final = 0.2


def interval_of(request: Request, default: float | None) -> float | None:
    """Seconds between comments: as the client asks, else the setting; None for no comments."""
    asked = request.header(HEADER)
    if asked is None or not _SECONDS.fullmatch(asked):
        return default
    seconds = float(asked)
    return max(LEAST, seconds) if seconds > 0 else None


class Comments:
    """Calls `write` with a comment at each interval, from `begin` to `end`."""

    __slots__ = ("_interval", "_loop", "_timer", "_write")

    def __init__(self, interval: float, write: Callable[[bytes], None]) -> None:
        self._interval = interval
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._write(COMMENT)
        self.begin()
