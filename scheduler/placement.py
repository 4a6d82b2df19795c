"""Which of several backends gets a ticket.

`predicted` takes the least predicted time to first token, with what a cached prefix saves, and
what caching it in a second place is worth, in the same unit. The others are what other gateways
do; the simulator compares with them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from zlib import crc32

from scheduler.admission import Offer
from scheduler.ledger import Member
from scheduler.model import Placement, Ticket

# To compute a prefix once more, where it is not cached, is not all loss: two backends hold it from
# then on, and what keeps coming for it is spread over both. This much of the time counts as won.
# With nothing, clients that repeat their prompts stayed crowded on one of two backends for ever.
_LASTING = 0.4
# That one of so many backends is idle while most are busy is next to certain, so the price of
# a decision need not grow with the fleet.
WINDOW = 16


def offers(
    members: Sequence[Member], ticket: Ticket, cached: Mapping[str, int], now: float
) -> list[Offer]:
    """What each of the members could do for the ticket."""
    made, prompt = [], ticket.prompt_tokens
    most = max(cached.values()) if cached else 0
    for member in members:
        cost = member.cost
        held = cached.get(member.backend.name, 0) if cached else 0
        tokens = prompt - held
        wait = member.wait(tokens, now)
        ttft = wait + cost.base + tokens * cost.per_token + held * cost.per_cached
        lasting = _LASTING * (most - held) * cost.per_token
        made.append(Offer(member, tokens, held, wait, ttft, lasting))
    return made


def best(made: Sequence[Offer]) -> Offer:
    """The least time to first token, less what lasts, by weight; then least loaded, then name."""
    return min(made, key=_preference)


def best_first(first: Offer, made: Sequence[Offer]) -> Iterator[Offer]:
    """The best one and then the others, which are sorted only for who asks for a second."""
    yield first
    yield from sorted([offer for offer in made if offer is not first], key=_preference)


def _preference(offer: Offer) -> tuple[float, float, str]:
    member = offer.member
    backend = member.backend
    time = offer.ttft - offer.lasting
    return time / backend.weight, len(member.flights) / backend.weight, backend.name


class Chooser:
    """The comparison policies. Deterministic: a ticket's own id serves as its random number."""

    __slots__ = ("_pick", "_turn")

    def __init__(self, placement: Placement) -> None:
        self._turn = 0
        picks: dict[Placement, Callable[[Sequence[Member], Ticket], Member]] = {
            Placement.ROUND_ROBIN: self._round_robin,
            Placement.POWER_OF_TWO: _power_of_two,
            Placement.LEAST_REQUESTS: _least_requests,
            Placement.LEAST_TOKENS: _least_tokens,
        }
        self._pick = picks.get(placement)

    def look_at(
        self, members: tuple[Member, ...], ticket: Ticket, cached: Mapping[str, int]
    ) -> Sequence[Member]:
        """The members worth a look: all of a small pool, a window of a big one.

        Whoever holds a part of the prompt in its cache is looked at in any case.
        """
        if len(members) <= WINDOW or self._pick is not None:
            return members
        start = crc32(ticket.id.encode()) % len(members)
        window = members[start : start + WINDOW]
        window += members[: WINDOW - len(window)]
        if not cached:
            return window
        known = {member.backend.name for member in window}
        holders = (m for m in members if m.backend.name in cached)
        return [*window, *(m for m in holders if m.backend.name not in known)]

    def pick(self, members: Sequence[Member], ticket: Ticket) -> Sequence[Member]:
        """The members to choose from: all of them, or the one that a comparison policy takes."""
        if self._pick is None or len(members) < 2:
            return members
        return (self._pick(members, ticket),)

    def _round_robin(self, members: Sequence[Member], ticket: Ticket) -> Member:
        self._turn += 1
        return members[self._turn % len(members)]


def _power_of_two(members: Sequence[Member], ticket: Ticket) -> Member:
    draw = crc32(ticket.id.encode())
    first = members[draw % len(members)]
    second = members[(draw // len(members)) % len(members)]
    return min(first, second, key=lambda m: m.in_flight)


def _least_requests(members: Sequence[Member], ticket: Ticket) -> Member:
    # In two steps: a key made for each of thousands of members costs more than all else.
    counts = [len(member.flights) for member in members]
    fewest = min(counts)
    return min(
        [member for member, count in zip(members, counts, strict=True) if count == fewest],
        key=lambda member: member.backend.name,
    )


def _least_tokens(members: Sequence[Member], ticket: Ticket) -> Member:
    return min(members, key=lambda m: (m.prefill_backlog, m.backend.name))
