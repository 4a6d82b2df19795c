"""Whether a backend should begin with a ticket now, or when to ask again.

A gateway cannot pre-empt a prefill, so the decision to start a long one is the only moment to
protect the short prompts that will come while it runs. `HoldSpec` states the rule, and
docs/adr/0005-hold-long-prompts.md says why it is this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from scheduler.estimate import Meter
from scheduler.ledger import Member
from scheduler.model import Settings
from scheduler.pools import Pool
from scheduler.queues import Queued

# A scrape older than this says nothing about the KV cache any more.
_LOAD_VALID = 10.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a backend with a free slot could do for a ticket. Times are seconds from now."""

    member: Member
    tokens: int
    wait: float
    ttft: float


class Admission:
    """The rule of the current settings, and what it has learned of the larger classes' load."""

    __slots__ = ("_hold", "_kv_limit", "_load")

    def __init__(self, settings: Settings, before: "Admission | None" = None) -> None:
        self._hold = settings.hold
        self._kv_limit = 1.0 - settings.kv_reserve
        self._load: dict[str, Meter] = {} if before is None else before._load

    def arrived(self, queued: Queued, pool: Pool, now: float) -> None:
        """Count the work of a larger class, per model (the fleet's models bound the meters)."""
        if not pool.smallest:
            meter = self._load.setdefault(queued.ticket.model, Meter())
            meter.add(queued.ticket.prompt_tokens, now)

    def delay(self, offer: Offer, pool: Pool, queued: Queued, shared: "Openings") -> float:
        """Seconds until the offer may be taken if nothing else happens: 0.0 is now.

        `inf` waits for an event.
        """
        ahead = self._hold.ahead
        if pool.smallest:
            late = 0.0 if offer.wait <= ahead else offer.ttft - pool.spec.ttft_target
            return max(late, 0.0)
        if not self._kv_room(offer.member, shared.now):
            return inf
        if offer.wait > ahead:
            return offer.wait - ahead
        if offer.member not in shared.members:
            return 0.0
        return self._held(offer, queued, shared)

    def busy(self, offer: Offer) -> bool:
        """Whether the offer's backend has other prompts before it."""
        return offer.wait > self._hold.ahead

    def _held(self, offer: Offer, queued: Queued, shared: "Openings") -> float:
        """Hold a long prompt until short ones will have an opening, or it has waited enough."""
        hold, age = self._hold, shared.now - queued.arrived
        opening = shared.without(offer)
        if opening <= hold.tolerance or age >= 2.0 * hold.patience:
            return 0.0
        until_open = opening - hold.tolerance
        if age < hold.patience and self._others_suffice(queued.ticket.model, shared):
            return min(until_open, hold.patience - age)
        spread = (offer.ttft - offer.wait) / len(shared.members)
        return min(max(opening - spread, 0.0), until_open, 2.0 * hold.patience - age)

    def _others_suffice(self, model: str, shared: "Openings") -> bool:
        """Whether all shared backends but one can carry the larger classes' load."""
        meter = self._load.get(model)
        if meter is None or len(shared.members) < 2:
            return False
        per_token = max(m.cost.per_token for m in shared.members)
        return meter.rate(shared.now) * per_token <= self._hold.fill * (len(shared.members) - 1)

    def _kv_room(self, member: Member, now: float) -> bool:
        load = member.load
        return load is None or now - load.at > _LOAD_VALID or load.kv_usage <= self._kv_limit


class Openings:
    """When the backends that serve the smallest class will next be open to a short prompt.

    Looked up once, and only if somebody asks.
    """

    __slots__ = ("_first", "_second", "_soonest", "members", "now")

    def __init__(self, members: Sequence[Member], now: float) -> None:
        self.members = members
        self.now = now
        self._first, self._second = inf, inf
        self._soonest: Member | None = None

    def without(self, offer: Offer) -> float:
        """Seconds until a backend is open if the offer is taken now."""
        if self._soonest is None:
            self._look()
        others = self._second if offer.member is self._soonest else self._first
        chunk = offer.member.backend.long_chunk
        own = offer.wait + min(offer.tokens, chunk or offer.tokens) * offer.member.cost.per_token
        return min(others, own)

    def _look(self) -> None:
        for member in self.members:
            wait = member.wait(1, self.now)
            if wait < self._first:
                self._first, self._second, self._soonest = wait, self._first, member
            elif wait < self._second:
                self._second = wait
