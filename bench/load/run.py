"""Sending the planned requests: in an open loop, at their times, or in a closed one.

In an open loop nothing waits for an answer: a server that is slow meets the same load as one that
is fast, and every latency counts from the intended start. (A generator that waits leaves out just
the requests that would have met the stall: "coordinated omission".)
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Protocol

from bench.load.alarm import Alarm
from bench.load.exchange import Exchanger, Request
from bench.load.sample import Sample

Collect = Callable[[Sample], None]

_SCHEDSTAT = Path("/proc/self/schedstat")
"""Nanoseconds on a core, nanoseconds of waiting for one, turns (Linux)."""


class Sender(Protocol):
    """Sends a request and returns what became of it; `began` is the start of the run."""

    @property
    def began(self) -> float: ...

    def now(self) -> float:
        """Seconds from the start of the run."""
        ...

    async def send(self, request: Request) -> Sample: ...


class Turns:
    """Several servers as one: each request goes to the next one in turn."""

    def __init__(self, exchangers: Sequence[Exchanger]) -> None:
        self._first = exchangers[0]
        self._next = cycle(exchangers)

    @property
    def began(self) -> float:
        return self._first.began

    def now(self) -> float:
        return self._first.now()

    async def send(self, request: Request) -> Sample:
        return await next(self._next).send(request)


async def open_loop(sender: Sender, requests: Sequence[Request], collect: Collect) -> None:
    """Send each at its time; return when the last answer is over.

    Cancelled, it cuts the open requests, collects their samples too, and then raises.
    """

    async def one(request: Request) -> None:
        collect(await sender.send(request))

    with Alarm() as alarm:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                await alarm.until(sender.began + request.at)
                group.create_task(one(request))


async def closed_loop(
    sender: Sender,
    requests: Sequence[Request],
    collect: Collect,
    *,
    concurrency: int,
    duration: float | None,
    warm_up: float = 0.0,
) -> None:
    """Keep `concurrency` requests open: each is intended when the one before it has ended.

    After `duration` seconds no further one is begun; those that are begun in the first `warm_up`
    seconds are marked, whatever time they were planned for. Cancelled as `open_loop` is.
    """

    async def worker(shared: Iterator[Request]) -> None:
        for request in shared:
            now = sender.now()
            if duration is not None and now >= duration:
                return
            # Before the run's start, too, but only where a warm-up is asked for.
            early = max(now, 0.0) < warm_up
            collect(await sender.send(replace(request, at=now, warm_up=early)))

    shared = iter(requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker(shared))


@dataclass(frozen=True, slots=True)
class Effort:
    """What the run cost the generator, in seconds: by the clock, on a core, waiting for a core."""

    wall: float
    cpu: float
    waited: float = 0.0


class Stopwatch:
    """Measures the Effort since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        self._waited = _waited()

    def effort(self) -> Effort:
        return Effort(
            wall=time.perf_counter() - self._wall,
            cpu=time.process_time() - self._cpu,
            waited=_waited() - self._waited,
        )


def _waited() -> float:
    """Seconds that this thread stood in a queue for a core; 0 where the system does not tell."""
    if not _SCHEDSTAT.exists():
        return 0.0
    return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
