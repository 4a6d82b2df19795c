"""Sending the planned requests: in an open loop, at their times, or in a closed one.

In an open loop nothing waits for an answer: a server that is slow meets the same load as one that
is fast, and every latency counts from the intended start. (A generator that waits leaves out just
the requests that would have met the stall: "coordinated omission".)
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench.load.alarm import Alarm
from bench.load.exchange import Exchanger, Request
from bench.load.sample import Sample

Collect = Callable[[Sample], None]


async def open_loop(exchanger: Exchanger, requests: Sequence[Request], collect: Collect) -> None:
    """Send each at its time; return when the last answer is over.

    Cancelled, it cuts the open requests, collects their samples too, and then raises.
    """

    async def one(request: Request) -> None:
        collect(await exchanger.send(request))

    with Alarm() as alarm:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                await alarm.until(exchanger.began + request.at)
                group.create_task(one(request))


async def closed_loop(
    exchanger: Exchanger,
    requests: Sequence[Request],
    collect: Collect,
    *,
    concurrency: int,
    duration: float | None,
) -> None:
    """Keep `concurrency` requests open: each is intended when the one before it has ended.

    After `duration` seconds no further one is begun. Cancelled as `open_loop` is.
    """

    async def worker(shared: Iterator[Request]) -> None:
        for request in shared:
            now = exchanger.now()
            if duration is not None and now >= duration:
                return
            collect(await exchanger.send(replace(request, at=now)))

    shared = iter(requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker(shared))


@dataclass(frozen=True, slots=True)
class Effort:
    """What the run cost the generator: wall-clock and CPU seconds."""

    wall: float
    cpu: float


class Stopwatch:
    """Measures the Effort since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def effort(self) -> Effort:
        return Effort(time.perf_counter() - self._wall, time.process_time() - self._cpu)
