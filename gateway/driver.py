"""Runs the scheduler on the event loop: turns its commands into waiting futures and one timer.

This is the border between relay and brain: a ticket in, a permit or a rejection out, then first
token and end reports. Nothing else of the gateway touches the scheduler.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

from gateway.errors import EngineBusy, Rejected
from scheduler.core import Scheduler
from scheduler.events import (
    Abandoned,
    Arrived,
    Cancel,
    Command,
    Decided,
    Dispatch,
    Drain,
    Event,
    Failed,
    Finished,
    FirstToken,
    Reject,
    WakeAt,
    Woke,
)
from scheduler.model import Settings, Ticket
from scheduler.snapshot import Snapshot


class Permit:
    """The right to use one slot of one backend; released exactly once, in a `finally`.

    As a context manager it reports how the block ended: Finished when nothing was raised,
    Abandoned on cancellation, Failed on any other error.
    """

    __slots__ = ("_driver", "backend", "service_class", "ticket_id")

    def __init__(self, driver: "Driver", dispatch: Dispatch) -> None:
        self._driver = driver
        self.ticket_id = dispatch.ticket_id
        self.backend = dispatch.backend
        self.service_class = dispatch.service_class

    def first_token(self) -> None:
        self._driver.apply(FirstToken(self.ticket_id))

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        end: Finished | Failed | Abandoned
        if kind is None:
            end = Finished(self.ticket_id)
        elif issubclass(kind, asyncio.CancelledError):
            end = Abandoned(self.ticket_id)
        else:
            end = Failed(self.ticket_id, busy=issubclass(kind, EngineBusy))
        self._driver.release(end)


class Driver:
    """One scheduler on one event loop."""

    def __init__(self, settings: Settings, on_decision: Callable[[Decided], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = Scheduler(settings)
        self._on_decision = on_decision
        self._waiting: dict[str, asyncio.Future[Dispatch]] = {}
        self._in_flight: dict[str, asyncio.Task[object] | None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def snapshot(self) -> Snapshot:
        return self._scheduler.snapshot()

    async def admit(self, ticket: Ticket) -> Permit:
        """Wait for a backend. Raises Rejected; cancelling takes the ticket out of the queue."""
        future: asyncio.Future[Dispatch] = self._loop.create_future()
        self._waiting[ticket.id] = future
        self.apply(Arrived(ticket))
        try:
            dispatch = future.result() if future.done() else await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.exception()  # it was answered in the same turn; nobody will read it
            self.apply(Abandoned(ticket.id))
            raise
        finally:
            del self._waiting[ticket.id]
        self._in_flight[ticket.id] = asyncio.current_task()
        return Permit(self, dispatch)

    def release(self, end: Finished | Failed | Abandoned) -> None:
        """Give a permit's slot back. A second release of one permit is an error of ours."""
        del self._in_flight[end.ticket_id]
        self.apply(end)

    def drain(self) -> None:
        self.apply(Drain())

    def apply(self, event: Event) -> None:
        """Tell the scheduler what happened, now, and carry out what it answers."""
        for command in self._scheduler.handle(event, monotonic()):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Dispatch():
                self._resolve(command.ticket_id, command)
            case Reject():
                error = Rejected(command.reason, command.service_class, command.retry_after)
                self._resolve(command.ticket_id, error)
            case WakeAt():
                self._set_timer(command.at)
            case Decided():
                self._on_decision(command)
            case Cancel():
                if (task := self._in_flight.get(command.ticket_id)) is not None:
                    task.cancel()

    def _resolve(self, ticket_id: str, answer: Dispatch | Rejected) -> None:
        future = self._waiting.get(ticket_id)
        if future is None or future.done():
            return  # abandoned in this very turn of the loop: admit() reports it
        if isinstance(answer, Rejected):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvloop rounds to the nearest millisecond: half of one too early would wake us twice.
        self._timer = self._loop.call_later(max(0.0, at - monotonic()) + 0.0005, self._woke)

    def _woke(self) -> None:
        self._timer = None
        self.apply(Woke())
