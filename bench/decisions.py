"""`python -m bench decisions`: what one decision of the scheduler costs, with queues of a size.

A decision is a request's whole life in the scheduler: arrival, dispatch, first token, end.
Measured with the queue kept at its length, so that every arrival waits behind all others and
every end sends the next one on.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from math import inf
from pathlib import Path
from random import Random
from time import process_time
from typing import Annotated

import typer

from bench.scenarios import Report
from bench.simulate import show
from scheduler.core import Scheduler
from scheduler.events import (
    Arrived,
    BackendChanged,
    Command,
    Dispatch,
    Finished,
    FirstToken,
)
from scheduler.model import Backend, BackendState, ClassSpec, Settings, Ticket

_SETTINGS = Settings(
    classes=(
        ClassSpec("short", max_prompt_tokens=1024, queue_limit=1_000_000),
        ClassSpec("long", queue_limit=1_000_000),
    ),
    queue_wait=1e6,
)
_BACKENDS = 8
_SLOTS = 16
_TENANTS = 16


class FullHouse:
    """A scheduler with a queue that is kept at its length; `turn` is one decision."""

    def __init__(self, queued: int, seed: int = 0) -> None:
        self._tickets = _tickets(seed)
        self._scheduler = _fleet(_BACKENDS)
        self._flying: deque[Finished] = deque()
        self._now = 0.0
        self._coming: deque[Arrived] = deque()
        self._reports: dict[str, tuple[FirstToken, Finished]] = {}
        self.dispatched = 0
        self.prepare(queued + _BACKENDS * _SLOTS)
        while self._coming:
            self._obey(self._scheduler.handle(self._coming.popleft(), self._now))

    @property
    def queued(self) -> int:
        return sum(pool.queued for pool in self._scheduler.snapshot().pools)

    def prepare(self, number: int) -> None:
        """Make the events of the next tickets: the gateway's work, and not the scheduler's."""
        for ticket in islice(self._tickets, number):
            self._coming.append(Arrived(ticket))
            self._reports[ticket.id] = FirstToken(ticket.id), Finished(ticket.id)

    def turn(self) -> None:
        """One request arrives, the oldest in flight ends, the next one is sent on."""
        self._now += 1e-4
        handle, now = self._scheduler.handle, self._now
        self._obey(handle(self._coming.popleft(), now))
        self._obey(handle(self._flying.popleft(), now))

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                self.dispatched += 1
                first_token, finished = self._reports.pop(command.ticket_id)
                self._flying.append(finished)
                self._obey(self._scheduler.handle(first_token, self._now))


def _tickets(seed: int) -> Iterator[Ticket]:
    random = Random(seed)
    for number in count():
        tokens = 8000 if random.random() < 0.1 else 100
        tenant = f"tenant{random.randrange(_TENANTS)}"
        yield Ticket(f"t{number}", "m", tokens, tenant=tenant)


def _fleet(backends: int) -> Scheduler:
    scheduler = Scheduler(_SETTINGS)
    for index in range(backends):
        name, models = f"b{index}", frozenset({"m"})
        backend = Backend(name, BackendState.READY, models, limit=_SLOTS, prefill_rate=1e6)
        scheduler.handle(BackendChanged(backend), 0.0)
    return scheduler


def decisions_per_second(house: FullHouse, seconds: float, clock: Callable[[], float]) -> float:
    """Decisions per second of CPU, measured for `seconds`."""
    before, spent = house.dispatched, 0.0
    while spent < seconds:
        house.prepare(1000)
        start = clock()
        for _ in range(1000):
            house.turn()
        spent += clock() - start
    return (house.dispatched - before) / spent


def idle_microseconds(requests: int, clock: Callable[[], float]) -> float:
    """CPU microseconds per request of a scheduler with two backends that is never busy.

    Three events: it arrives and is sent on at once, its first token comes, its stream ends.
    """
    scheduler, now = _fleet(2), 0.0
    lives = [
        (Arrived(ticket), FirstToken(ticket.id), Finished(ticket.id))
        for ticket in islice(_tickets(0), requests)
    ]
    start = clock()
    for arrived, first_token, finished in lives:
        scheduler.handle(arrived, now)
        scheduler.handle(first_token, now + 0.1)
        scheduler.handle(finished, now + 0.5)
        now += 1.0
    return (clock() - start) / requests * 1e6


def measure(seconds: float = 0.2, rounds: int = 30) -> dict[str, float]:
    """The best of many short rounds for each queue length, interleaved; and the cost ratio.

    Short, because on a shared machine a long round always has a neighbour's work in it.
    """
    houses = {queued: FullHouse(queued) for queued in (1_000, 10_000, 100_000)}
    best = dict.fromkeys(houses, 0.0)
    idle = inf
    for _ in range(rounds):
        idle = min(idle, idle_microseconds(2_000, process_time))
        for queued, house in houses.items():
            best[queued] = max(best[queued], decisions_per_second(house, seconds, process_time))
    return {
        "decisions_per_s_1k": round(best[1_000]),
        "decisions_per_s_10k": round(best[10_000]),
        "decisions_per_s_100k": round(best[100_000]),
        "cost_ratio_100k_1k": round(best[1_000] / best[100_000], 3),
        "cpu_us_per_request_idle": round(idle, 1),
    }


def decisions(
    seconds: Annotated[float, typer.Option(help="CPU seconds for each measurement.")] = 0.2,
    rounds: Annotated[int, typer.Option(help="How often each is measured; the best counts.")] = 30,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure what one decision of the scheduler costs, with 1k, 10k and 100k queued."""
    show(Report(measure(seconds, rounds)), json)
