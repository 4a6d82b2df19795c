"""Runs the scheduler on the event loop: routes its commands to whom they concern, and keeps its
one timer. Nothing else of the gateway touches the scheduler."""

import asyncio
from collections.abc import Callable
from time import monotonic

from gateway.gate import Answer, Report
from gateway.listeners import Listeners
from scheduler.core import Scheduler
from scheduler.events import (
    Arrived,
    Command,
    Decided,
    Drain,
    Event,
    WakeAt,
    Woke,
)
from scheduler.model import Settings, Ticket
from scheduler.snapshot import Snapshot


class Driver:
    """One scheduler on one event loop; a `gate.Admitter` for the requests of this process."""

    def __init__(self, settings: Settings, on_decision: Callable[[Decided], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = Scheduler(settings)
        self._on_decision = on_decision
        self._listeners = Listeners()
        self._timer: asyncio.TimerHandle | None = None

    def snapshot(self) -> Snapshot:
        return self._scheduler.snapshot()

    def submit(self, ticket: Ticket, answer: Callable[[Answer], None]) -> None:
        """Queue a ticket; `answer` hears what becomes of it, perhaps before this returns."""
        self._listeners.add(ticket.id, answer)
        self.apply(Arrived(ticket))

    def report(self, event: Report) -> None:
        """Tell of a submitted ticket; after its end nobody hears of it any more."""
        self._listeners.reported(event)
        self.apply(event)

    def drain(self) -> None:
        self.apply(Drain())

    def apply(self, event: Event) -> None:
        """Tell the scheduler what happened, now, and carry out what it answers."""
        for command in self._scheduler.handle(event, monotonic()):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, WakeAt):
            self._set_timer(command.at)
        elif isinstance(command, Decided):
            self._on_decision(command)
        else:
            self._listeners.tell(command)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvloop rounds to the nearest millisecond: half of one too early would wake us twice.
        self._timer = self._loop.call_later(max(0.0, at - monotonic()) + 0.0005, self._woke)

    def _woke(self) -> None:
        self._timer = None
        self.apply(Woke())
