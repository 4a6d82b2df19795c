"""`python -m bench decisions`: what one decision of the scheduler costs, with queues of a size.

A decision is a request's whole life in the scheduler: arrival, dispatch, first token, end.
Measured with the queue kept at its length, so that every arrival waits behind all others and
every end sends the next one on.
"""

from collections import deque
from collections.abc import Callable
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
    Event,
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
_TENANTS = 16


class FullHouse:
    """A scheduler with a queue that is kept at its length; `turn` is one decision."""

    def __init__(self, queued: int, seed: int = 0) -> None:
        self._random = Random(seed)
        self._scheduler = Scheduler(_SETTINGS)
        self._flying: deque[str] = deque()
        self._now = 0.0
        self._number = 0
        self._serial = 0
        self._made: deque[Ticket] = deque()
        self.dispatched = 0
        for index in range(_BACKENDS):
            backend = Backend(
                f"b{index}",
                BackendState.READY,
                frozenset({"m"}),
                limit=16,
                prefill_rate=1e6,
            )
            self._tell(BackendChanged(backend))
        while self._number < queued + _BACKENDS * 16:
            self._arrive()

    @property
    def queued(self) -> int:
        return sum(pool.queued for pool in self._scheduler.snapshot().pools)

    def prepare(self, count: int) -> None:
        """Make the next tickets, which is the gateway's work and not the scheduler's."""
        self._made.extend(self._make() for _ in range(count))

    def turn(self) -> None:
        """One request arrives, the oldest in flight ends, the next one is sent on."""
        self._now += 1e-4
        self._arrive()
        if self._flying:
            self._tell(Finished(self._flying.popleft()))

    def _arrive(self) -> None:
        self._number += 1
        self._tell(Arrived(self._made.popleft() if self._made else self._make()))

    def _make(self) -> Ticket:
        random = self._random
        self._serial += 1
        tokens = 8000 if random.random() < 0.1 else 100
        tenant = f"tenant{random.randrange(_TENANTS)}"
        return Ticket(f"t{self._serial}", "m", tokens, tenant=tenant)

    def _tell(self, event: Event) -> None:
        for command in self._scheduler.handle(event, self._now):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        if isinstance(command, Dispatch):
            self.dispatched += 1
            self._flying.append(command.ticket_id)
            self._tell(FirstToken(command.ticket_id))


def decisions_per_second(queued: int, seconds: float, clock: Callable[[], float]) -> float:
    """Decisions per second of CPU with `queued` tickets waiting, measured for `seconds`."""
    house = FullHouse(queued)
    before, spent = house.dispatched, 0.0
    while spent < seconds:
        house.prepare(1000)
        start = clock()
        for _ in range(1000):
            house.turn()
        spent += clock() - start
    return (house.dispatched - before) / spent


def measure(seconds: float = 2.0, rounds: int = 3) -> dict[str, float]:
    """The best of several rounds for each queue length, interleaved; and the cost ratio."""
    best = dict.fromkeys((1_000, 10_000, 100_000), 0.0)
    for _ in range(rounds):
        for queued in best:
            rate = decisions_per_second(queued, seconds, process_time)
            best[queued] = max(best[queued], rate)
    return {
        "decisions_per_s_1k": round(best[1_000]),
        "decisions_per_s_10k": round(best[10_000]),
        "decisions_per_s_100k": round(best[100_000]),
        "cost_ratio_100k_1k": round(best[1_000] / best[100_000], 3),
    }


def decisions(
    seconds: Annotated[float, typer.Option(help="CPU seconds for each measurement.")] = 2.0,
    rounds: Annotated[int, typer.Option(help="How often each is measured; the best counts.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure what one decision of the scheduler costs, with 1k, 10k and 100k queued."""
    show(Report(measure(seconds, rounds)), json)
