"""A relay process as the brain sees it: what it asks, reports and owns.

Every ticket of the process is known here, so that the slots of one that dies come back at once.
"""

from collections.abc import Callable
from typing import Any

from backends.errors import from_wire
from backends.types import OwnTraffic
from gateway.brain import Brain
from gateway.driver import Driver
from gateway.gate import Answer
from gateway.listeners import ENDS
from gateway.node.link import Message
from gateway.node.messages import (
    answer_to_wire,
    report_from_wire,
    ticket_from_wire,
)
from gateway.rehearsal import MARK
from gateway.tenancy.allowance import Allowance, Mirror
from scheduler.events import Abandoned, Cancel, Dispatch


class Port:
    """One relay process's standing with the brain. `send` puts a message on its link."""

    def __init__(self, name: str, brain: Brain, send: Callable[..., None]) -> None:
        self.name = name
        self._brain = brain
        self._send = send
        self._tickets: set[str] = set()
        self._understudy: Driver | None = None
        self._on: dict[str, Callable[..., None]] = {
            "submit": self._submit,
            "report": self._report,
            "answered": brain.fleet.answered,
            "failure": self._failure,
            "distrust": brain.distrust,
            "rehearsing": self._rehearsing,
            "spent": self._spent,
            "traffic": self._note_traffic,
        }

    def handles(self, message: Message) -> bool:
        """Carry out a message about requests and backends; False when it is about neither."""
        handler = self._on.get(message[0])
        if handler is None:
            return False
        handler(*message[1:])
        return True

    def close(self) -> None:
        """The process is gone: its requests have ended, whatever they were doing."""
        for ticket_id in self._tickets:
            self._brain.door.report(Abandoned(ticket_id))
        self._tickets.clear()
        self._brain.fleet.reports.forget(self.name)

    def _submit(self, *values: Any) -> None:
        ticket = ticket_from_wire(values)
        if ticket.id.startswith(MARK):
            if self._understudy is not None:
                self._understudy.submit(ticket, self._answer)
            return
        self._tickets.add(ticket.id)
        self._brain.door.submit(ticket, self._answer)

    def _answer(self, answer: Answer) -> None:
        if not isinstance(answer, Dispatch | Cancel | Allowance | Mirror):
            self._tickets.discard(answer.ticket_id)
        self._send(*answer_to_wire(answer))

    def _report(self, *values: Any) -> None:
        event = report_from_wire(values)
        if event.ticket_id.startswith(MARK):
            if self._understudy is not None:
                self._understudy.report(event)
            return
        if isinstance(event, ENDS):
            self._tickets.discard(event.ticket_id)
        self._brain.door.report(event)

    def _rehearsing(self, backend: str) -> None:
        self._understudy = self._brain.understudy(backend)

    def _spent(self, backend: str, requests: int, tokens: int) -> None:
        """A rehearsal is over, and has cost this."""
        self._understudy = None
        self._brain.fleet.spent(backend, OwnTraffic(requests, tokens))

    def _failure(self, name: str, kind: str, backend: str, message: str) -> None:
        self._brain.fleet.report_failure(name, from_wire(kind, backend, message))

    def _note_traffic(self, backends: list[tuple[str, int, float, float]]) -> None:
        for name, in_flight, heard_at, used_at in backends:
            self._brain.fleet.reports.report(
                self.name, name, in_flight=in_flight, heard_at=heard_at, used_at=used_at
            )
