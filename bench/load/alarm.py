"""Waiting for a moment to a fraction of a millisecond.

An event loop's own timers wake up to a millisecond late, since epoll counts in milliseconds. A
request sent so late would be measured from its intended start, and the server blamed for it.
"""

import asyncio
import ctypes
import os
import time
from contextlib import suppress
from typing import Self

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_NANOSECONDS = 1_000_000_000


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class Alarm:
    """A Linux timerfd in the event loop; serves one waiter at a time. Use in a `with` block.

    Where there is no timerfd the loop's own timer serves, a millisecond late at worst.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = asyncio.get_running_loop()
        self._rang: asyncio.Future[None] | None = None
        self._fd = -1
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    async def until(self, at: float) -> None:
        """Wait for that time of the monotonic clock; return at once when it is over."""
        delay = at - time.monotonic()
        if delay <= 0:
            return
        if self._fd < 0:
            await asyncio.sleep(delay)
            return
        self._rang = self._loop.create_future()
        self._set(at)
        await self._rang

    def _set(self, at: float) -> None:
        seconds, nanoseconds = divmod(int(at * _NANOSECONDS), _NANOSECONDS)
        spec = _TimerSpec(_Time(0, 0), _Time(seconds, nanoseconds))
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
        if self._rang is not None and not self._rang.done():
            self._rang.set_result(None)
