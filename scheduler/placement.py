"""Which of several backends gets a ticket.

`predicted` takes the least predicted time to first token, with what a cached prefix saves in
the same unit. The others are what other gateways do; the simulator compares with them.
"""

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from scheduler.admission import Offer
from scheduler.ledger import Member
from scheduler.model import Placement, Ticket


def offers(
    members: Sequence[Member], ticket: Ticket, cached: dict[str, int], now: float
) -> list[Offer]:
    """What each of the members could do for the ticket."""
    made = []
    for member in members:
        tokens = ticket.prompt_tokens
        if cached:
            tokens -= cached.get(member.backend.name, 0)
        wait = member.wait(tokens, now)
        made.append(Offer(member, tokens, wait, wait + member.cost.seconds(tokens)))
    return made


def by_preference(made: list[Offer]) -> Iterator[Offer]:
    """The offers, best first; sorts them only for who asks for a second one."""
    yield min(made, key=_preference)
    yield from sorted(made, key=_preference)[1:]


def _preference(offer: Offer) -> tuple[float, float, str]:
    """Least predicted time to first token by weight, then the least loaded, then the name."""
    backend = offer.member.backend
    return offer.ttft / backend.weight, offer.member.in_flight / backend.weight, backend.name


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

    def pick(self, members: Sequence[Member], ticket: Ticket) -> Sequence[Member]:
        """The members to consider: all of them, or the one that a comparison policy takes."""
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
    return min(members, key=lambda m: (m.in_flight, m.backend.name))


def _least_tokens(members: Sequence[Member], ticket: Ticket) -> Member:
    return min(members, key=lambda m: (m.prefill_backlog, m.backend.name))
