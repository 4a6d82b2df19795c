"""One run of the load from the first question to the server to the last sample."""

import asyncio
import gc
import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.client import Client, ClientLimits
from backends.types import BackendSpec, Timeouts
from bench.load.discover import Served, discover, template_overhead
from bench.load.exchange import Exchanger, Request
from bench.load.live import Live
from bench.load.plan import Lengths, Planner
from bench.load.prompts import Prompts, length_with
from bench.load.run import Effort, Stopwatch, closed_loop, open_loop
from bench.load.sample import Sample
from bench.load.target import Api, Target
from bench.workload import Job

CONNECTIONS = 65_536
"""More than any run opens: the generator must never be what makes a request wait."""

LEAD = 0.2
"""Seconds between the start of the clock and the first request."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A run's settings. `concurrency` makes it a closed loop, which ends after `duration` seconds
    if not before. `warm_up` is in seconds.
    """

    url: str
    timeouts: Timeouts
    lengths: Lengths
    model: str | None = None
    tokenizer: Path | None = None
    api: Api = Api.CHAT
    stream: bool = True
    ignore_eos: bool = True
    api_key: str | None = None
    concurrency: int | None = None
    duration: float | None = None
    warm_up: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`overhead` is what the server's template adds to each prompt, in tokens."""

    samples: list[Sample]
    effort: Effort
    served: Served
    overhead: int


async def run_load(settings: Settings, jobs: Sequence[Job], console: Console) -> Outcome:
    """Send the jobs; SIGINT cuts the run short and what was measured is returned.

    Raises LoadFailed and InexactTokenizer before the first request of the load.
    """
    served = await discover(
        settings.url,
        model=settings.model,
        tokenizer=settings.tokenizer,
        api_key=settings.api_key,
    )
    target = Target(settings.url, served.model, settings.api, settings.stream, settings.ignore_eos)
    spec = BackendSpec("target", target.origin, api_key=settings.api_key)
    client = Client(spec, ClientLimits(connections=CONNECTIONS))
    clock = asyncio.get_running_loop().time
    try:
        prompts = Prompts(length_with(served.tokenizer))
        first = Exchanger(target, client, settings.timeouts, began=clock())
        overhead = await template_overhead(first, prompts)
        planner = Planner(prompts, settings.lengths, overhead=overhead, seed=settings.seed)
        requests = planner.requests(jobs, warm_up=settings.warm_up)
        with _without_old_garbage():
            began = clock() + LEAD
            exchanger = Exchanger(target, client, settings.timeouts, began=began)
            samples, effort = await _send(exchanger, requests, settings, console)
        return Outcome(samples, effort, served, overhead)
    finally:
        await client.close()


async def _send(
    exchanger: Exchanger, requests: list[Request], settings: Settings, console: Console
) -> tuple[list[Sample], Effort]:
    samples: list[Sample] = []
    with Live(console, len(requests)) as live:

        def collect(sample: Sample) -> None:
            samples.append(sample)
            live.add(sample)

        stopwatch = Stopwatch()
        if settings.concurrency is None:
            await _until_interrupted(open_loop(exchanger, requests, collect))
        else:
            loop = closed_loop(
                exchanger,
                requests,
                collect,
                concurrency=settings.concurrency,
                duration=settings.duration,
            )
            await _until_interrupted(loop)
        return samples, stopwatch.effort()


@contextmanager
def _without_old_garbage() -> Iterator[None]:
    """Spare the collector what the run has prepared, which would stop it at every full pass."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _until_interrupted(sending: Coroutine[Any, Any, None]) -> None:
    """Send until all is over, or until SIGINT."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sending)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            await asyncio.wait([task])
        finally:
            loop.remove_signal_handler(signal.SIGINT)
