"""The service classes as pools: each with its queue, its limit, its burst window, its counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf

from scheduler.burst import AdaptiveLimit, BurstWindow
from scheduler.estimate import Meter
from scheduler.events import Reason
from scheduler.ledger import Flight, Member
from scheduler.model import ClassSpec, Settings, Ticket
from scheduler.queues import Bounds, ClassQueue

# A queue's drain rate is what it did lately, not what it did a minute ago.
_DRAIN_MEMORY = 10.0


@dataclass(slots=True, eq=False)
class Pool:
    """One class. `lead` is added to its tickets' ranks: smaller classes go first, by so much."""

    spec: ClassSpec
    name: str = field(init=False)
    queue: ClassQueue
    limit: AdaptiveLimit
    lead: float
    smallest: bool
    bounds: Bounds = field(init=False)
    burst: BurstWindow = field(default_factory=BurstWindow)
    served: Meter = field(default_factory=lambda: Meter(_DRAIN_MEMORY))
    in_flight: int = 0
    bursty: int = 0
    """Burst prompts in flight whose first token has not come."""
    backends: int = 0
    last_served: float = -inf
    asleep_until: float = -inf
    """Asking before this would find nothing changed: no slot free, no backlog shorter."""
    needs_slot: bool = False
    """Only a free slot can help: no backlog stands in its way."""
    waits_for: Member | None = None
    """The busy backend that its next ticket will go to."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.name = spec.name
        self.bounds = _bounds(spec.queue_limit, spec.queue_tokens, spec.queue_bytes)

    @property
    def at_limit(self) -> bool:
        return self.in_flight >= self.limit.effective

    def wake(self) -> None:
        """Something changed that may let its next ticket go."""
        self.asleep_until = -inf
        self.needs_slot = False

    def may_go(self, now: float) -> bool:
        """Whether it is worth asking for its next ticket."""
        return (
            self.asleep_until <= now
            and self.in_flight < self.limit.effective
            and self.queue.held.tickets > 0
        )

    def refusal(self, ticket: Ticket) -> Reason | None:
        """Why the queue, with this ticket in it, is over one of its limits, or None."""
        queue = self.queue
        if queue.held.exceeds(self.bounds):
            return Reason.QUEUE_FULL
        if queue.shares is not None and queue.shares.exceeded(ticket.tenant):
            return Reason.TENANT_QUEUE_FULL
        return None


class Pools:
    """All classes of one setting, smallest first."""

    __slots__ = (
        "_bounded",
        "_burst",
        "_by_name",
        "_reserve",
        "_spill_reserve",
        "ordered",
        "smallest",
    )

    def __init__(self, settings: Settings, before: "Pools | None" = None) -> None:
        """Make a pool per class; classes that were there `before` keep their adaptive limit."""
        self._burst = settings.burst
        self._reserve = settings.short_reserve
        self._spill_reserve = settings.spill_reserve
        self._by_name: dict[str, Pool] = {}
        weights = {tenant.name: tenant.weight for tenant in settings.tenants}
        for index, spec in enumerate(sorted(settings.classes, key=_bound)):
            old = before.get(spec.name) if before is not None else None
            limit = AdaptiveLimit(settings.burst) if old is None else old.limit
            lead = index * settings.ageing
            queue = ClassQueue(weights, _tenant_bounds(spec))
            pool = Pool(spec, queue, limit, lead, smallest=index == 0)
            self._by_name[spec.name] = pool
        self.ordered = tuple(self._by_name.values())
        self.smallest = self.ordered[0]
        self._bounded = [(_bound(pool.spec), pool) for pool in self.ordered[:-1]]

    def __iter__(self) -> Iterator[Pool]:
        return iter(self.ordered)

    def __getitem__(self, name: str) -> Pool:
        return self._by_name[name]

    def get(self, name: str) -> Pool | None:
        return self._by_name.get(name)

    def of(self, tokens: int) -> Pool:
        """The smallest class that takes a prompt of `tokens`."""
        for bound, pool in self._bounded:
            if tokens <= bound:
                return pool
        return self.ordered[-1]

    def count(self, flight: Flight, step: int) -> None:
        """Count a flight in (1) or out (-1); its class may be gone since."""
        pool = self._by_name.get(flight.service_class)
        if pool is not None:
            pool.in_flight += step
            if flight.bursty and flight.prefilling:
                pool.bursty += step

    def first_token(self, flight: Flight) -> None:
        """A bursty flight that is in its prefill leaves it; its class may be gone since."""
        pool = self._by_name.get(flight.service_class)
        if pool is not None:
            pool.bursty -= 1

    def configure(self, pool: Pool, members: Sequence[Member], lenders: Sequence[Member]) -> None:
        """Refit a pool's limit to the backends that it has now, and those it may spill over to."""
        pool.backends = len(members)
        limit = pool.spec.limit
        if limit is None:
            limit = sum(self.slots(member, pool) for member in members)
            limit += sum(self._lendable(member.backend.limit) for member in lenders)
        pool.limit.configure(self._burst, limit, floor=pool.backends)

    def slots(self, member: Member, pool: Pool) -> int:
        """How many requests of a class, with those of the other larger ones, a backend takes.

        Where a backend serves the smallest class beside others, a share of its slots is closed
        to the others: they would fill all of them for seconds, while short requests come and
        go. At least one slot stays open to every class.
        """
        backend, limit = member.backend, member.backend.limit
        shared = not backend.classes or self.smallest.name in backend.classes
        if pool.smallest or not shared or backend.classes == {self.smallest.name}:
            return limit
        return max(1, limit - ceil(limit * self._reserve))

    def may_lend(self, member: Member) -> bool:
        """Whether the backend is idle enough to take one more ticket of a class not its own."""
        if not member.idle or any(self._by_name[c].queue for c in self._own(member)):
            return False
        return member.strangers < self._lendable(member.limit.effective)

    def _lendable(self, limit: int) -> int:
        return floor(limit * (1.0 - self._spill_reserve))

    def _own(self, member: Member) -> Iterator[str]:
        return (name for name in member.backend.classes if name in self._by_name)

    def has_slot(self, member: Member, pool: Pool) -> bool:
        """Whether one of a backend's free slots is open to a class that is not the smallest."""
        larger = len(member.flights) - member.by_class.get(self.smallest.name, 0)
        return larger < member.limit.effective and larger < self.slots(member, pool)


def _bounds(*limits: int | None) -> Bounds:
    return Bounds(*(inf if limit is None else limit for limit in limits))


def _tenant_bounds(spec: ClassSpec) -> Bounds:
    return _bounds(spec.tenant_queue_limit, spec.tenant_queue_tokens, spec.tenant_queue_bytes)


def _bound(spec: ClassSpec) -> float:
    return inf if spec.max_prompt_tokens is None else spec.max_prompt_tokens
