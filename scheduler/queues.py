"""Who waits, and in which order within a class. Where a ticket may go is decided elsewhere.

A class's tickets wait in *lanes*: one per model and set of avoided backends, so that all
tickets of a lane can go to the same places and a blocked head blocks nobody who could go on.
Between tenants the order is start-time fair queueing on prompt tokens (Goyal, Vin, Cheng,
SIGCOMM 1996): what two waiting tenants of equal weight got differs by at most one largest
prompt each. Within a tenant it is the age of the ticket, with a head start for priority.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf
from types import MappingProxyType

from scheduler.lazyheap import LazyHeap
from scheduler.model import Ticket

# Tenants whose past service is remembered before those that have caught up are dropped.
_REMEMBERED = 1024

LaneKey = tuple[str, frozenset[str]]


@dataclass(slots=True, eq=False)
class Queued:
    """A waiting ticket. `rank` orders it within its tenant (seconds; smaller goes first).

    `work` is what of its prompt an engine has to compute, if it goes where most is cached.
    """

    ticket: Ticket
    service_class: str
    arrived: float
    expires: float
    rank: float
    work: int
    gone: bool = False
    """It waits no more."""


class FairClock:
    """Virtual time of one class: how many tokens of service, over its weight, each tenant had."""

    __slots__ = ("_weights", "finish", "virtual")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.virtual = 0.0
        self._weights = weights
        self.finish: dict[str, float] = {}

    def tag(self, tenant: str, since: float) -> float:
        """The tenant's start tag, for a tenant that has been waiting since virtual `since`."""
        finish = self.finish.get(tenant, 0.0)
        return finish if finish > since else since

    def charge(self, tenant: str, tag: float, tokens: int) -> None:
        """The tenant was served `tokens` at start tag `tag`."""
        self.virtual = tag if tag > self.virtual else self.virtual
        self.finish[tenant] = tag + (tokens or 1) / self._weights.get(tenant, 1.0)
        if len(self.finish) > _REMEMBERED:
            # A finish tag behind virtual time says nothing any more: forget it.
            self.finish = {t: f for t, f in self.finish.items() if f > self.virtual}


class Lane:
    """The tickets of one class that may go to the same backends."""

    __slots__ = ("_clock", "_tenants", "_turns", "avoid", "model")

    def __init__(self, key: LaneKey, clock: FairClock) -> None:
        self.model, self.avoid = key
        self._clock = clock
        self._tenants: dict[str, LazyHeap[Queued]] = {}
        self._turns: list[tuple[float, str]] = []

    def __iter__(self) -> Iterator[Queued]:
        return (queued for heap in self._tenants.values() for queued in heap)

    def add(self, queued: Queued) -> bool:
        """Add a ticket; False if the lane's head is certainly the same as before."""
        tenant = queued.ticket.tenant
        heap = self._tenants.get(tenant)
        if heap is None:
            heap = self._tenants[tenant] = LazyHeap()
            heappush(self._turns, (self._clock.tag(tenant, self._clock.virtual), tenant))
        return heap.push(queued, queued.rank)

    def left(self, tenant: str) -> None:
        """A ticket of the tenant is gone."""
        self._tenants[tenant].left()

    def served(self, tenant: str) -> None:
        """The ticket that `head` offered is gone."""
        self._tenants[tenant].take_first()

    def head(self) -> "Head | None":
        """The ticket whose turn it is, or None when empty."""
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
                return Head(tag, first[2], self)
            heappop(turns)
            del self._tenants[tenant]
        return None


@dataclass(slots=True, eq=False)
class Head:
    """The ticket of a lane whose turn it is, and its tenant's fair tag."""

    tag: float
    queued: Queued
    lane: Lane


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait; infinite where that is not bounded."""

    tickets: float
    tokens: float
    body_bytes: float


UNBOUNDED = Bounds(inf, inf, inf)


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

    def exceeds(self, bounds: Bounds) -> bool:
        return (
            self.tickets > bounds.tickets
            or self.tokens > bounds.tokens
            or self.body_bytes > bounds.body_bytes
        )


class Shares:
    """What each tenant holds of a queue, and how much it may."""

    __slots__ = ("_bounds", "held")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.held: dict[str, Held] = {}

    def add(self, ticket: Ticket) -> None:
        own = self.held.get(ticket.tenant)
        if own is None:
            own = self.held[ticket.tenant] = Held()
        own.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        own = self.held[ticket.tenant]
        own.remove(ticket)
        if not own.tickets:
            del self.held[ticket.tenant]

    def exceeded(self, tenant: str) -> bool:
        """Whether a tenant that has a ticket in the queue holds more than it may."""
        return self.held[tenant].exceeds(self._bounds)


class ClassQueue:
    """All waiting tickets of one class, and how much they are.

    `shares` counts by tenant, where what a tenant may hold is bounded.
    """

    __slots__ = ("_clock", "_lanes", "_turns", "held", "shares")

    def __init__(
        self,
        weights: Mapping[str, float] = MappingProxyType({}),
        tenant_bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._clock = FairClock(weights)
        self.held = Held()
        self.shares = Shares(tenant_bounds) if tenant_bounds != UNBOUNDED else None
        self._lanes: dict[LaneKey, Lane] = {}
        self._turns: Sequence[Head] | None = None

    def __len__(self) -> int:
        return self.held.tickets

    def __iter__(self) -> Iterator[Queued]:
        return (queued for lane in self._lanes.values() for queued in lane)

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
        if self.shares is not None:
            self.shares.add(ticket)
        self.held.add(ticket)
        return new

    def remove(self, queued: Queued) -> None:
        """Take a ticket out that will not be served: its tenant is not charged."""
        ticket = queued.ticket
        self._take(queued)
        self._lanes[(ticket.model, ticket.avoid)].left(ticket.tenant)

    def serve(self, head: Head) -> None:
        """Take the head out that `turns` offered, and charge its tenant."""
        ticket = head.queued.ticket
        self._take(head.queued)
        head.lane.served(ticket.tenant)
        self._clock.charge(ticket.tenant, head.tag, ticket.prompt_tokens)

    def serve_at_once(self, ticket: Ticket) -> None:
        """Charge the tenant of a ticket that did not have to wait in here."""
        clock = self._clock
        tag = clock.tag(ticket.tenant, clock.virtual)
        clock.charge(ticket.tenant, tag, ticket.prompt_tokens)

    def _take(self, queued: Queued) -> None:
        ticket = queued.ticket
        queued.gone = True
        self._turns = None
        self.held.remove(ticket)
        if self.shares is not None:
            self.shares.remove(ticket)

    def turns(self) -> Sequence[Head]:
        """Each lane's head, fairest first."""
        if self._turns is None:
            self._turns = self._take_turns()
        return self._turns

    def _take_turns(self) -> Sequence[Head]:
        heads = [head for lane in self._lanes.values() if (head := lane.head()) is not None]
        if len(heads) < len(self._lanes):
            self._lanes = {(head.lane.model, head.lane.avoid): head.lane for head in heads}
        if len(heads) > 1:
            heads.sort(key=lambda head: (head.tag, head.queued.ticket.id))
        return heads
