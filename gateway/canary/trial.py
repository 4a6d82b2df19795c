"""One canary as one gateway sees it: who goes where, and how that ended. Pure; time is an argument.

Where a session goes depends on nothing but its name and the new group's share, so every gateway
says the same, and a session that has moved stays as long as the share only grows.
"""

from dataclasses import dataclass, field, replace
from hashlib import blake2b

from gateway.canary.config import CanaryConfig
from gateway.canary.progress import OVER, Progress
from gateway.canary.sketch import Group
from scheduler.model import Ticket


@dataclass(slots=True)
class _Flight:
    group: str
    service_class: str
    dispatched: float
    ttft: float | None = None


@dataclass(slots=True)
class Seen:
    """What ended here and has not been added to the common counts."""

    old: Group = field(default_factory=Group)
    new: Group = field(default_factory=Group)

    def of(self, group: str) -> Group:
        return self.new if group == "new" else self.old

    def fields(self) -> dict[str, int]:
        return self.old.fields("old") | self.new.fields("new")


class Trial:
    """`progress` None: nobody knows yet how far it is, and the old group gets everything."""

    def __init__(self, spec: CanaryConfig) -> None:
        self.spec = spec
        self.progress: Progress | None = None
        self.seen = Seen()
        self._flights: dict[str, _Flight] = {}

    @property
    def share(self) -> float:
        return 0.0 if self.progress is None else self.progress.share(self.spec)

    @property
    def is_over(self) -> bool:
        return self.progress is not None and self.progress.phase in OVER

    def avoided(self, ticket: Ticket) -> frozenset[str]:
        """The backends that the ticket should not go to. One that must not go everywhere (a
        retry, or one that only a certain backend can answer) is steered while that leaves a
        choice."""
        others = self.spec.old if place_of(ticket) < self.share else self.spec.new
        if {*self.spec.old, *self.spec.new} <= {*ticket.avoid, *others}:
            return frozenset()
        return frozenset(others)

    def mirrored(self, ticket: Ticket, backend: str) -> frozenset[str]:
        """The backends that a copy of a ticket at this backend should not go to; empty: no copy."""
        if self.is_over or backend not in self.spec.old or ticket.avoid:
            return frozenset()
        drawn = place_of(replace(ticket, session="", id=f"{ticket.id}|copy")) < self.spec.shadow
        return frozenset(self.spec.old) if drawn else frozenset()

    def group_of(self, backend: str) -> str | None:
        if backend in self.spec.new:
            return "new"
        return "old" if backend in self.spec.old else None

    def dispatched(self, ticket_id: str, backend: str, service_class: str, now: float) -> None:
        group = self.group_of(backend)
        if group is not None and not self.is_over:
            self._flights[ticket_id] = _Flight(group, service_class, now)

    def first_token(self, ticket_id: str, now: float) -> None:
        flight = self._flights.get(ticket_id)
        if flight is not None and flight.ttft is None:
            flight.ttft = now - flight.dispatched

    def finished(self, ticket_id: str) -> None:
        """Of a whole answer nobody knows when its first token came."""
        if (flight := self._flights.pop(ticket_id, None)) is not None:
            self.seen.of(flight.group).answered(flight.service_class, flight.ttft)

    def failed(self, ticket_id: str) -> None:
        if (flight := self._flights.pop(ticket_id, None)) is not None:
            self.seen.of(flight.group).failed()

    def abandoned(self, ticket_id: str) -> None:
        """A client that left says nothing about the group, unless its first token had come."""
        flight = self._flights.pop(ticket_id, None)
        if flight is not None and flight.ttft is not None:
            self.seen.of(flight.group).answered(flight.service_class, flight.ttft)

    def take_seen(self) -> Seen:
        """What is to be added to the common counts now."""
        seen, self.seen = self.seen, Seen()
        return seen


def place_of(ticket: Ticket) -> float:
    """Where the ticket's session stands between 0 and 1; without a session, the ticket itself."""
    name = f"{ticket.tenant}|{ticket.session}" if ticket.session else ticket.id
    digest = blake2b(name.encode(), digest_size=6).digest()
    return float(int.from_bytes(digest, "big")) / float(1 << 48)
