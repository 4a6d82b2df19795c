"""Who waits, and in which order within a class. Where a ticket may go is decided elsewhere.

A class's tickets wait in *lanes*: one per model and set of avoided backends, so that all
tickets of a lane can go to the same places and a blocked head blocks nobody who could go on.
Between tenants the order is start-time fair queueing on prompt tokens (Goyal, Vin, Cheng,
SIGCOMM 1996): what two waiting tenants of equal weight got differs by at most one largest
prompt each. Within a tenant it is the age of the ticket, with a head start for priority.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from types import MappingProxyType
from typing import NamedTuple

from scheduler.lazyheap import LazyHeap
from scheduler.model import Ticket

# Tenants whose past service is remembered before those that have caught up are dropped.
_REMEMBERED = 1024

LaneKey = tuple[str, frozenset[str]]


class Queued(NamedTuple):
    """A waiting ticket. `rank` orders it within its tenant (seconds; smaller goes first).

    `work` is what of its prompt an engine has to compute, if it goes where most is cached.
    """

    ticket: Ticket
    arrived: float
    expires: float
    rank: float
    work: int


class FairClock:
    """Virtual time of one class: how many tokens of service, over its weight, each tenant had."""

    __slots__ = ("_weights", "finish", "virtual")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.virtual = 0.0
        self._weights = weights
        self.finish: dict[str, float] = {}

    def tag(self, tenant: str, since: float) -> float:
        """The tenant's start tag, for a tenant that has been waiting since virtual `since`."""
        return max(since, self.finish.get(tenant, 0.0))

    def charge(self, tenant: str, tag: float, tokens: int) -> None:
        """The tenant was served `tokens` at start tag `tag`."""
        self.virtual = max(self.virtual, tag)
        self.finish[tenant] = tag + max(tokens, 1) / self._weights.get(tenant, 1.0)
        if len(self.finish) > _REMEMBERED:
            # A finish tag behind virtual time says nothing any more: forget it.
            self.finish = {t: f for t, f in self.finish.items() if f > self.virtual}


class Lane:
    """The tickets of one class that may go to the same backends."""

    __slots__ = ("_clock", "_tenants", "_turns", "avoid", "model")

    def __init__(self, key: LaneKey, clock: FairClock) -> None:
        self.model, self.avoid = key
        self._clock = clock
        self._tenants: dict[str, LazyHeap] = {}
        self._turns: list[tuple[float, str]] = []

    def add(self, queued: Queued) -> bool:
        """Add a ticket; False if the lane's head is certainly the same as before."""
        tenant = queued.ticket.tenant
        heap = self._tenants.get(tenant)
        if heap is None:
            heap = self._tenants[tenant] = LazyHeap()
            heappush(self._turns, (self._clock.tag(tenant, self._clock.virtual), tenant))
        return heap.push(queued.ticket.id, queued.rank)

    def discard(self, ticket: Ticket) -> None:
        self._tenants[ticket.tenant].discard(ticket.id)

    def head(self) -> tuple[float, str] | None:
        """The fair tag and the id of the ticket whose turn it is, or None when empty."""
        turns, finished = self._turns, self._clock.finish
        while turns:
            tag, tenant = turns[0]
            # Served since its turn was noted, here or in another lane: it stands further back.
            current = finished.get(tenant, 0.0)
            if current > tag:
                heapreplace(turns, (current, tenant))
                continue
            first = self._tenants[tenant].first()
            if first is not None:
                return tag, first[1]
            heappop(turns)
            del self._tenants[tenant]
        return None


class Head(NamedTuple):
    """The ticket of a lane whose turn it is, and its tenant's fair tag."""

    tag: float
    queued: Queued
    lane: Lane


class Held:
    """How much waits: tickets, their prompt tokens, the bytes of their bodies."""

    __slots__ = ("body_bytes", "tickets", "tokens")

    def __init__(self) -> None:
        self.tickets = self.tokens = self.body_bytes = 0

    def add(self, ticket: Ticket) -> None:
        self.tickets += 1
        self.tokens += ticket.prompt_tokens
        self.body_bytes += ticket.body_bytes

    def remove(self, ticket: Ticket) -> None:
        self.tickets -= 1
        self.tokens -= ticket.prompt_tokens
        self.body_bytes -= ticket.body_bytes


class ClassQueue:
    """All waiting tickets of one class, and how much they are, together and by tenant."""

    __slots__ = ("_clock", "_lanes", "_turns", "by_tenant", "entries", "held")

    def __init__(self, weights: Mapping[str, float] = MappingProxyType({})) -> None:
        self._clock = FairClock(weights)
        self.held = Held()
        self.by_tenant: dict[str, Held] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        self.entries: dict[str, Queued] = {}
        self._turns: Sequence[Head] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self.entries.values())

    def __getitem__(self, ticket_id: str) -> Queued:
        return self.entries[ticket_id]

    def add(self, queued: Queued) -> bool:
        """Queue a ticket; True if it may go where no other ticket of the queue may."""
        ticket = queued.ticket
        key = (ticket.model, ticket.avoid)
        lane = self._lanes.get(key)
        new = lane is None
        if lane is None:
            lane = self._lanes[key] = Lane(key, self._clock)
        if lane.add(queued):
            self._turns = None
        self.entries[ticket.id] = queued
        own = self.by_tenant.get(ticket.tenant)
        if own is None:
            own = self.by_tenant[ticket.tenant] = Held()
        own.add(ticket)
        self.held.add(ticket)
        return new

    def remove(self, ticket_id: str) -> Queued:
        """Take a ticket out that will not be served: its tenant is not charged."""
        queued = self.entries[ticket_id]
        ticket = queued.ticket
        self._take(ticket, self._lanes[(ticket.model, ticket.avoid)])
        return queued

    def serve(self, head: "Head") -> None:
        """Take the head out that `turns` offered, and charge its tenant."""
        ticket = head.queued.ticket
        self._take(ticket, head.lane)
        self._clock.charge(ticket.tenant, head.tag, ticket.prompt_tokens)

    def serve_at_once(self, ticket: Ticket) -> None:
        """Charge the tenant of a ticket that did not have to wait in here."""
        clock = self._clock
        tag = clock.tag(ticket.tenant, clock.virtual)
        clock.charge(ticket.tenant, tag, ticket.prompt_tokens)

    def _take(self, ticket: Ticket, lane: Lane) -> None:
        del self.entries[ticket.id]
        self._turns = None
        lane.discard(ticket)
        self.held.remove(ticket)
        own = self.by_tenant[ticket.tenant]
        own.remove(ticket)
        if not own.tickets:
            del self.by_tenant[ticket.tenant]

    def turns(self) -> Sequence[Head]:
        """Each lane's head, fairest first."""
        if self._turns is None:
            self._turns = self._take_turns()
        return self._turns

    def _take_turns(self) -> Sequence[Head]:
        entries, heads = self.entries, []
        for key, lane in tuple(self._lanes.items()):
            head = lane.head()
            if head is None:
                del self._lanes[key]
            else:
                heads.append(Head(head[0], entries[head[1]], lane))
        if len(heads) > 1:
            heads.sort(key=lambda head: (head.tag, head.queued.ticket.id))
        return heads
