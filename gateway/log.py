"""Where log lines go: the program's own on stderr, one JSON line per request in the request log.

The request log never holds prompt text, and never blocks the event loop: lines are collected and
written by a thread, and dropped (counted) when the disk or pipe cannot keep up.
"""

import asyncio
import dataclasses
import logging
import sys
import time
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from random import random
from typing import IO, Any

import orjson

from gateway.record import Outcome, RequestRecord

FLUSH_INTERVAL = 0.25
MAX_PENDING_LINES = 50_000

_FIELDS = tuple(field.name for field in dataclasses.fields(RequestRecord))
_values = attrgetter(*_FIELDS)

log = logging.getLogger("forebay.log")


class LogLevel(StrEnum):
    """What `--log-level` takes."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


def configure(level: str = "INFO") -> None:
    """Send the program's own log to stderr, in a form that people and machines read."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger("forebay")
    root.handlers = [handler]
    root.setLevel(level)
    root.propagate = False


class RequestLog:
    """One JSON line per request, to a file or (with "-") to stdout.

    Of the completed ones only the share `sample` is written, each with the number of requests that
    it stands for; what did not go well is always there.
    """

    def __init__(self, target: str, sample: float = 1.0) -> None:
        self._sample = sample
        self._loop = asyncio.get_running_loop()
        self._file: IO[bytes] = _open(target)
        self._pending: list[bytes] = []
        self._flushing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.dropped = 0

    def write(self, record: RequestRecord) -> None:
        weight = 1.0
        if self._sample < 1.0 and record.outcome is Outcome.COMPLETED:
            if random() >= self._sample:
                return
            weight = 1.0 / self._sample
        if len(self._pending) >= MAX_PENDING_LINES:
            self.dropped += 1
            return
        self._pending.append(render(record, weight))
        if self._timer is None:
            self._timer = self._loop.call_later(FLUSH_INTERVAL, self._flush)

    async def close(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await self._flushing
        await asyncio.to_thread(self._write, b"".join(self._pending))
        if self.dropped:
            log.warning("the request log lost %d lines: its target is too slow", self.dropped)
        if self._file is not sys.stdout.buffer:
            self._file.close()

    def _flush(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            self._timer = self._loop.call_later(FLUSH_INTERVAL, self._flush)
            return
        lines, self._pending, self._timer = b"".join(self._pending), [], None
        self._flushing = self._loop.run_in_executor(None, self._write, lines)

    def _write(self, lines: bytes) -> None:
        self._file.write(lines)
        self._file.flush()


def _open(target: str) -> IO[bytes]:
    return sys.stdout.buffer if target == "-" else Path(target).open("ab")


def render(record: RequestRecord, weight: float = 1.0) -> bytes:
    """The record as one line of JSON; times in seconds, with the wall clock beside them."""
    line: dict[str, Any] = dict(zip(_FIELDS, _values(record), strict=True))
    line["outcome"] = record.outcome.value  # orjson takes an enum, too, but three times as long
    line["time"] = time.time()
    if weight != 1.0:
        line["weight"] = weight
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
