"""One run of the load from the first question to the server to the last sample."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from backends.client import Client, ClientLimits
from backends.types import BackendSpec, Timeouts
from bench.load.discover import Served, discover, template_overhead
from bench.load.exchange import Exchanger, Request
from bench.load.live import Live
from bench.load.plan import Lengths, Planner
from bench.load.prompts import Prompts, length_with
from bench.load.run import Effort, Sender, Stopwatch, Turns, closed_loop, open_loop
from bench.load.sample import Sample
from bench.load.target import Api, Target
from bench.workload import Job

CONNECTIONS = 65_536
"""More than any run opens: the generator must never be what makes a request wait."""

LEAD = 0.2
"""Seconds between the start of the clock and the first request."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A run's settings. `also` are further servers of the same model, which get requests in turn.

    `concurrency` makes it a closed loop, which ends after `duration` seconds if not before.
    `warm_up` is in seconds.
    """

    url: str
    timeouts: Timeouts
    lengths: Lengths
    also: tuple[str, ...] = ()
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
    """`overhead` is what the server's template adds to each prompt, in tokens.

    `left_out` counts the jobs that were not sent because no answer to them fits the context.
    """

    samples: list[Sample]
    effort: Effort
    served: Served
    overhead: int
    left_out: int = 0
    interrupted: bool = False


async def run_load(
    settings: Settings, jobs: Sequence[Job], console: Console, *, interruptible: bool = False
) -> Outcome:
    """Send the jobs. `interruptible`: SIGINT cuts the run short and what was measured is returned.

    Raises LoadFailed and InexactTokenizer before the first request of the load.
    """
    served = await discover(
        settings.url,
        model=settings.model,
        tokenizer=settings.tokenizer,
        api_key=settings.api_key,
    )
    fitting = [job for job in jobs if served.fits(job)]
    async with _exchangers(settings, served.model) as exchangers:
        prompts = Prompts(length_with(served.tokenizer))
        overhead = await template_overhead(exchangers[0], prompts, served)
        planner = Planner(prompts, settings.lengths, overhead=overhead, seed=settings.seed)
        with console.status("preparing the prompts"):
            requests = planner.requests(fitting, warm_up=settings.warm_up)
        with _without_old_garbage():
            began = monotonic() + LEAD
            for exchanger in exchangers:
                exchanger.began = began
            until = _until_interrupted if interruptible else _until_over
            sending = _Sending(Turns(exchangers), requests, settings, console)
            interrupted = await until(sending.run())
    samples, effort = sending.samples, sending.stopwatch.effort()
    left_out = len(jobs) - len(fitting)
    return Outcome(samples, effort, served, overhead, left_out, interrupted)


@asynccontextmanager
async def _exchangers(settings: Settings, model: str) -> AsyncIterator[list[Exchanger]]:
    """One for each server, with a client of its own."""
    clients: list[Client] = []
    exchangers: list[Exchanger] = []
    try:
        for url in (settings.url, *settings.also):
            target = Target(url, model, settings.api, settings.stream, settings.ignore_eos)
            spec = BackendSpec("target", target.origin, api_key=settings.api_key)
            clients.append(Client(spec, ClientLimits(connections=CONNECTIONS)))
            exchangers.append(Exchanger(target, clients[-1], settings.timeouts, began=monotonic()))
        yield exchangers
    finally:
        for client in clients:
            await client.close()


class _Sending:
    """The requests under way; `samples` grow while `run` goes on."""

    def __init__(
        self, sender: Sender, requests: list[Request], settings: Settings, console: Console
    ) -> None:
        self.samples: list[Sample] = []
        self.stopwatch = Stopwatch()
        self._sender = sender
        self._requests = requests
        self._settings = settings
        self._console = console

    async def run(self) -> None:
        with Live(self._console, len(self._requests)) as live:

            def collect(sample: Sample) -> None:
                self.samples.append(sample)
                live.add(sample)

            concurrency = self._settings.concurrency
            if concurrency is None:
                await open_loop(self._sender, self._requests, collect)
            else:
                await closed_loop(
                    self._sender,
                    self._requests,
                    collect,
                    concurrency=concurrency,
                    duration=self._settings.duration,
                    warm_up=self._settings.warm_up,
                )


@contextmanager
def _without_old_garbage() -> Iterator[None]:
    """Spare the collector what the run has prepared, which would stop it at every full pass."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _until_over(sending: Coroutine[Any, Any, None]) -> bool:
    await sending
    return False


async def _until_interrupted(sending: Coroutine[Any, Any, None]) -> bool:
    """Send until all is over, or until SIGINT: then true."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sending)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            await asyncio.wait([task])
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    return task.cancelled()
