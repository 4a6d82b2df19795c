"""One backend's ledger: what is in flight there, and how long its prefill backlog will take.

An engine prefills in the order of arrival and a gateway cannot pre-empt it. So a backend is
seen as a serial server of prompt tokens, with a predicted time at which it will be through.
"""

from dataclasses import dataclass

from scheduler.burst import AdaptiveLimit, LateWindow
from scheduler.estimate import DecodePace, PrefillCost
from scheduler.model import AdaptSpec, Backend, Ticket

# A prediction is not trusted to more than this share: a prefill that should be over by now,
# but has shown no first token, is taken to need this share of the whole once more.
_DOUBT = 0.05


@dataclass(slots=True)
class Flight:
    """A dispatched ticket, from dispatch to the end of its stream.

    `tokens` is what the backend is expected to compute of the prompt, `cached` what it holds of it;
    `blocking` says that the former are more than one engine step, `bursty` that they count as a
    burst, and `lengthy` that the latter alone take so long that others wait for them.
    `expected` is when its first token would come if its prefill, and those before it, were all
    that takes time; `seen` is when a token last came, and `answer` how many had come by then.
    """

    ticket: Ticket
    service_class: str
    member: "Member"
    dispatched: float
    tokens: int
    cached: int = 0
    blocking: bool = False
    bursty: bool = False
    lengthy: bool = False
    expected: float = 0.0
    prefilling: bool = True
    seen: float = 0.0
    answer: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """What a scrape of the backend said last, and when."""

    kv_usage: float
    preemptions: int
    at: float


class Member:
    """One backend and its ledger."""

    __slots__ = (
        "_busy_since",
        "_free_at",
        "_prefilling",
        "backend",
        "blocking",
        "by_class",
        "cached_backlog",
        "cost",
        "flights",
        "late",
        "limit",
        "load",
        "near_backlog",
        "pace",
        "prefill_backlog",
        "removed",
        "vacant",
    )

    def __init__(self, backend: Backend, limits: AdaptSpec) -> None:
        self.backend = backend
        self.cost = PrefillCost(backend.prefill_rate)
        self.pace = DecodePace()
        self.late = LateWindow()
        self.flights: dict[str, Flight] = {}
        self.by_class: dict[str, int] = {}
        self.prefill_backlog = 0
        self.near_backlog = 0
        self.cached_backlog = 0
        self.blocking = 0
        self.limit = AdaptiveLimit(limits, backend.limit)
        self.load: Load | None = None
        self.removed = False
        self.vacant = True
        self._prefilling: dict[str, int] = {}
        self._busy_since = 0.0
        self._free_at = 0.0

    def update(self, backend: Backend, limits: AdaptSpec) -> None:
        """The backend differs from before; what it has in flight stays."""
        if backend.long_chunk != self.backend.long_chunk:
            chunk = backend.long_chunk
            self.near_backlog = sum(_near(n, chunk) for n in self._prefilling.values())
        if backend.prefill_rate != self.backend.prefill_rate:
            self.cost = PrefillCost(backend.prefill_rate)
        self.limit.configure(limits, backend.limit)
        self.backend = backend
        self.removed = False

    @property
    def in_flight(self) -> int:
        return len(self.flights)

    def has_room(self) -> bool:
        return len(self.flights) < self.limit.effective and self.backend.limit > 0

    @property
    def idle(self) -> bool:
        """Whether no prompt is being prefilled."""
        return not self._prefilling

    def lends_to(self, service_class: str) -> bool:
        """Whether the class is a stranger here."""
        classes = self.backend.classes
        return bool(classes) and service_class not in classes

    @property
    def strangers(self) -> int:
        """Requests in flight of classes that the backend does not serve."""
        return sum(count for name, count in self.by_class.items() if self.lends_to(name))

    def progress(self, flight: Flight, tokens: int, now: float) -> None:
        """The answer of a flight that is past its prefill has so many tokens now."""
        more = tokens - flight.answer
        if more > 0:
            self.pace.add(more, now - flight.seen, now)
            flight.seen, flight.answer = now, tokens

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until the backend begins with a prompt of `tokens` sent now."""
        if not self._prefilling:
            return 0.0
        chunk, cost = self.backend.long_chunk, self.cost
        if 0 < tokens <= chunk:
            # It joins the next step beside one chunk of each long prompt.
            return self.near_backlog * cost.per_token + self.cached_backlog * cost.per_cached
        left = self._free_at - now
        doubted = _DOUBT * cost.seconds(self.prefill_backlog, self.cached_backlog)
        return left if left > doubted else doubted

    def open(self, flight: Flight) -> None:
        ticket_id, name, tokens = flight.ticket.id, flight.service_class, flight.tokens
        now, cost, chunk = flight.dispatched, self.cost, self.backend.long_chunk
        if self._prefilling:
            doubted = _DOUBT * cost.seconds(self.prefill_backlog, self.cached_backlog)
            self._free_at = max(self._free_at, now + doubted)
        else:
            self._busy_since = now
            self._free_at = now + cost.base
        self._free_at += cost.share(tokens, flight.cached)
        self.flights[ticket_id] = flight
        self.by_class[name] = self.by_class.get(name, 0) + 1
        self._prefilling[ticket_id] = tokens
        self.prefill_backlog += tokens
        self.near_backlog += _near(tokens, chunk) if chunk else tokens
        self.cached_backlog += flight.cached
        self.blocking += flight.blocking

    def first_token(self, flight: Flight, now: float) -> None:
        """The flight, until now in its prefill, is through; learn from how long that took."""
        flight.seen = now
        if self._heads(flight):
            self.cost.add(flight.tokens, now - self._busy_since, now, flight.cached)
            self._behind_head(flight, now)
        else:
            # It overtook the head: the time it took was not spent on the head.
            spent = self.cost.share(flight.tokens, flight.cached)
            self._busy_since = min(now, self._busy_since + spent)
            self._prefilled(flight)

    def close(self, flight: Flight, now: float) -> None:
        """The flight is over, with or without a first token."""
        if flight.prefilling and self._heads(flight):
            self._behind_head(flight, now)
        elif flight.prefilling:
            self._free_at -= self.cost.share(flight.tokens, flight.cached)
            self._prefilled(flight)
        del self.flights[flight.ticket.id]
        self.by_class[flight.service_class] -= 1

    def _heads(self, flight: Flight) -> bool:
        return next(iter(self._prefilling)) == flight.ticket.id

    def _behind_head(self, flight: Flight, now: float) -> None:
        """The backend is through with its first prompt and begins with the next."""
        self._prefilled(flight)
        self._busy_since = self._free_at = now
        if self._prefilling:
            self._free_at += self.cost.seconds(self.prefill_backlog, self.cached_backlog)

    def _prefilled(self, flight: Flight) -> None:
        tokens, chunk = flight.tokens, self.backend.long_chunk
        flight.prefilling = False
        del self._prefilling[flight.ticket.id]
        self.prefill_backlog -= tokens
        self.near_backlog -= _near(tokens, chunk) if chunk else tokens
        self.cached_backlog -= flight.cached
        self.blocking -= flight.blocking


def _near(tokens: int, chunk: int) -> int:
    """What of a prompt stands before a short one: a chunk of it where the engine chunks."""
    return min(tokens, chunk) if chunk else tokens
