"""Whether a backend should begin with a ticket now, or when to ask again.

A gateway cannot pre-empt a prefill, so the decision to start a long one is the only moment to
protect the short prompts that will come while it runs. `HoldSpec` states the rule, and
docs/adr/hold-long-prompts.md says why it is this one.
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
# Before this many seconds of traffic nobody knows how many short prompts come: expect them.
_NEWS = 10.0
# An engine's processes that a prompt passes through: with fewer prompts before it one would idle.
_STAGES = 3
# Seconds of reading before a prompt that are not worth holding it for.
_WORTH = 0.1


@dataclass(slots=True, eq=False)
class Offer:
    """What a backend with a free slot could do for a ticket. Times are seconds from now.

    `tokens` it would compute, `cached` ones it has. `lasting` is what having the prompt in this
    cache too is worth to those that come later.
    Not frozen: each decision makes one per backend, and a frozen one takes four times as long.
    """

    member: Member
    tokens: int
    cached: int
    wait: float
    ttft: float
    lasting: float = 0.0


class Admission:
    """The rule of the current settings, and what it has learned of the larger classes' load."""

    __slots__ = ("_hold", "_kv_limit", "_load", "_shorts")

    def __init__(self, settings: Settings, before: "Admission | None" = None) -> None:
        self._hold = settings.hold
        self._kv_limit = 1.0 - settings.kv_reserve
        self._load: dict[str, Meter] = {} if before is None else before._load
        self._shorts: dict[str, Meter] = {} if before is None else before._shorts

    def arrived(self, queued: Queued, pool: Pool, now: float) -> None:
        """Count what comes, per model (the fleet's models bound the meters)."""
        model = queued.ticket.model
        if pool.smallest:
            meters, amount = self._shorts, 1
        else:
            meters, amount = self._load, queued.work
        meter = meters.get(model)
        if meter is None:
            meter = meters[model] = Meter()
        meter.add(amount, now)

    def delay(self, offer: Offer, pool: Pool, queued: Queued, shared: "Openings") -> float:
        """Seconds until the offer may be taken if nothing else happens: 0.0 is now."""
        if pool.smallest:
            return self.lateness(offer, pool)
        if (stale := self._kv_full(offer.member, shared.now)) > 0.0:
            return stale
        late = offer.wait - self._lead(offer)
        if late > 0.0:
            return late
        if offer.tokens <= self._hold.step_tokens or offer.member not in shared.members:
            return 0.0
        return self._held(offer, pool, queued, shared)

    def lateness(self, offer: Offer, pool: Pool) -> float:
        """The same for the smallest class: seconds over its target, if there is a backlog."""
        if offer.wait <= self._hold.ahead:
            return 0.0
        return max(offer.ttft - pool.spec.ttft_target, 0.0)

    def busy(self, offer: Offer) -> bool:
        """Whether the offer's backend has too much before it."""
        return offer.wait > self._lead(offer)

    def _lead(self, offer: Offer) -> float:
        """How long before it is free a backend is sent more of a larger class, in seconds.

        An engine takes new prompts between two steps only: what comes a step too late leaves it
        half idle for one, and while it decodes a step lasts as long as the gap between tokens.
        Of prompts that are cached, and take long all the same, no step is filled: they pass through
        its front, its core and its worker, one in each; and those wait that came within a step,
        which also decodes what has begun.
        """
        hold, member = self._hold, offer.member
        if member.blocking:
            return max(hold.ahead, member.pace.itl)
        cost = member.cost
        reading = offer.cached * cost.per_cached
        if reading > hold.ahead and reading > offer.tokens * cost.per_token:
            stages = cost.base + _STAGES * cost.share(offer.tokens, offer.cached)
            return max(_WORTH, stages) + member.pace.itl
        return max(hold.ahead, cost.seconds(hold.step_tokens))

    def _held(self, offer: Offer, pool: Pool, queued: Queued, shared: "Openings") -> float:
        """Hold a long prompt until short ones will have an opening, or it has waited enough."""
        hold, now = self._hold, shared.now
        own = offer.ttft - offer.wait
        patience = hold.patience * own
        opening = shared.without(offer)
        unserved = now - max(queued.arrived, pool.last_served)
        if opening <= hold.tolerance or unserved >= 2.0 * patience:
            return 0.0
        if not self._shorts_expected(queued.ticket.model, own, now):
            return 0.0
        until_open = opening - hold.tolerance
        age = now - queued.arrived
        if age < patience and self._others_suffice(queued.ticket.model, shared):
            return min(until_open, patience - age)
        spread = own / len(shared.members)
        return min(max(opening - spread, 0.0), until_open, 2.0 * patience - unserved)

    def _shorts_expected(self, model: str, seconds: float, now: float) -> bool:
        """Whether a short prompt is likely to come in this time."""
        load, shorts = self._load.get(model), self._shorts.get(model)
        if load is None or load.seen < _NEWS:
            return True
        return shorts is not None and shorts.rate(now) * seconds >= self._hold.expected

    def _others_suffice(self, model: str, shared: "Openings") -> bool:
        """Whether all shared backends but one can carry the larger classes' load."""
        meter = self._load.get(model)
        if meter is None or len(shared.members) < 2:
            return False
        per_token = max(m.cost.per_token for m in shared.members)
        return meter.rate(shared.now) * per_token <= self._hold.fill * (len(shared.members) - 1)

    def _kv_full(self, member: Member, now: float) -> float:
        """For how long, unless it is seen anew, the backend's KV cache counts as full."""
        load = member.load
        if load is None or load.kv_usage <= self._kv_limit:
            return 0.0
        return load.at + _LOAD_VALID - now


class Openings:
    """When the backends that serve the smallest class will next be open to a short prompt.

    Looked up once, and only if somebody asks, among `looked_at` of all `members`.
    """

    __slots__ = ("_first", "_looked_at", "_second", "_slack", "_soonest", "members", "now")

    def __init__(
        self, members: Sequence[Member], looked_at: Sequence[Member], *, target: float, now: float
    ) -> None:
        self.members = members
        self._slack = target / 2.0
        self.now = now
        self._looked_at = looked_at
        self._first, self._second = inf, inf
        self._soonest: Member | None = None

    def without(self, offer: Offer) -> float:
        """Seconds until a backend is open if the offer, a blocking prompt, is taken now."""
        if self._soonest is None:
            self._look()
        others = self._second if offer.member is self._soonest else self._first
        chunk = offer.member.backend.long_chunk
        near = min(offer.tokens, chunk or offer.tokens)
        own = offer.wait + offer.member.cost.share(near, offer.cached)
        return min(others, own)

    def _look(self) -> None:
        for member in self._looked_at:
            wait = member.wait(1, self.now)
            if not member.blocking:
                # A queue of short prompts is in nobody's way until it is half their target.
                wait = max(0.0, wait - self._slack)
            if wait < self._first:
                self._first, self._second, self._soonest = wait, self._first, member
            elif wait < self._second:
                self._second = wait
