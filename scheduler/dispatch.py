"""Sends waiting tickets on, as long as any may go.

Asks the queues whose turn it is, placement which backend would be best, and admission whether
that one may begin now; remembers when to ask again.
"""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType

from scheduler.admission import Offer, Openings
from scheduler.books import Books
from scheduler.events import Dispatch
from scheduler.ledger import Member
from scheduler.model import Ticket
from scheduler.placement import WINDOW, best, best_first, offers
from scheduler.pools import Pool
from scheduler.queues import Queued
from scheduler.turn import Turn

# Waking earlier than this after a decision would find nothing changed but rounding.
_TICK = 0.001
_ROUNDING = 1e-6
_NOBODY: frozenset[str] = frozenset()
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Dispatcher:
    """Moves tickets from the queues to the backends."""

    __slots__ = ("_books", "_claimed", "_retry_at")

    def __init__(self, books: Books) -> None:
        self._books = books
        self._claimed: Member | None = None
        self._retry_at = inf

    @property
    def retry_at(self) -> float:
        """When a ticket that may not go yet could go without a further event."""
        at, books = inf, self._books
        # Where no slot is free all wait for an end, not for a time.
        for pool in books.pools.ordered if books.fleet.vacant else ():
            # A class at its limit waits for an end, not for a time.
            if -inf < pool.asleep_until < at and pool.queue and not pool.at_limit:
                at = pool.asleep_until
        return at

    def at_once(self, queued: Queued, pool: Pool, turn: Turn) -> bool:
        """Dispatch a ticket that comes while nobody waits, if it may go, past the queue."""
        if pool.at_limit:
            return False
        pool.waits_for, self._claimed, self._retry_at = None, None, inf
        offer = self._offer(queued, pool, turn.now)
        if offer is None:
            return False
        pool.queue.serve_at_once(queued.ticket)
        self._send(queued.ticket, pool, offer, turn)
        return True

    def pump(self, turn: Turn) -> None:
        """Dispatch every ticket that may go now; classes in the order of their oldest rank."""
        books, now = self._books, turn.now
        ready = [pool for pool in books.pools.ordered if pool.may_go(now)]
        while ready and books.fleet.vacant:
            pool = _oldest(ready) if len(ready) > 1 else ready[0]
            self._claimed = self._claim_against(pool)
            served = self._serve_one(pool, turn)
            if not served or (books.fleet.vacant and not pool.may_go(now)):
                ready.remove(pool)

    def _claim_against(self, pool: Pool) -> Member | None:
        """The backend that a larger class, ahead by age, waits for until it is less busy.

        Without the claim, smaller classes could keep that backend busy for ever.
        """
        for other in self._books.pools.ordered:
            if other.waits_for is None or other is pool or not other.queue:
                continue
            if not other.smallest and _rank(other) < _rank(pool):
                return other.waits_for
        return None

    def _serve_one(self, pool: Pool, turn: Turn) -> bool:
        """Dispatch the class's ticket whose turn it is, if any may go."""
        pool.waits_for, self._retry_at = None, inf
        for head in pool.queue.turns():
            offer = self._offer(head.queued, pool, turn.now)
            if offer is not None:
                self._books.serve(head, pool)
                self._send(head.queued.ticket, pool, offer, turn)
                return True
        # What another class has claimed is free for this one in the next turn.
        pool.wake()
        if self._claimed is None:
            pool.asleep_until = self._retry_at
            pool.needs_slot = self._retry_at == inf and not pool.spec.spill
        return False

    def _send(self, ticket: Ticket, pool: Pool, offer: Offer, turn: Turn) -> None:
        self._books.launch(ticket, pool, offer, turn.now)
        turn.commands.append(
            Dispatch(ticket.id, offer.member.backend.name, pool.name, turn.cause())
        )

    def _offer(self, queued: Queued, pool: Pool, now: float) -> Offer | None:
        """What the ticket takes now, or None and a note of when to ask again."""
        ticket = queued.ticket
        cached = _NOTHING
        if ticket.prefix or ticket.session:
            cached = self._books.prefixes.cached_tokens(ticket, now)
        members = self._with_slot(pool, ticket, cached)
        found = self._of_own(queued, pool, offers(members, ticket, cached, now), now)
        if found is None and pool.spec.spill:
            return self._of_lenders(queued, pool, cached, now)
        return found

    def _of_own(
        self, queued: Queued, pool: Pool, made: Sequence[Offer], now: float
    ) -> Offer | None:
        """The best offer of the class's own backends that may be taken."""
        if not made:
            return None
        first = made[0] if len(made) == 1 else best(made)
        if pool.smallest and self._books.admission.lateness(first, pool) <= _ROUNDING:
            return first
        shared = self._openings(queued.ticket, now)
        for offer in best_first(first, made):
            if self._may_take(offer, queued, pool, shared):
                return offer
            if pool.waits_for is offer.member:
                break
        return None

    def _of_lenders(
        self, queued: Queued, pool: Pool, cached: Mapping[str, int], now: float
    ) -> Offer | None:
        """The best offer of other classes' idle backends that may be taken at once."""
        books, ticket = self._books, queued.ticket
        found = books.fleet.lenders(pool.spec, ticket.model, ticket.avoid)
        members = [m for m in self._open(found, pool) if books.pools.may_lend(m)]
        if not members:
            return None
        offer = best(offers(members, ticket, cached, now))
        delay = books.admission.delay(offer, pool, queued, self._openings(ticket, now))
        return offer if delay <= _ROUNDING else None

    def _may_take(self, offer: Offer, queued: Queued, pool: Pool, shared: Openings) -> bool:
        admission = self._books.admission
        delay = admission.delay(offer, pool, queued, shared)
        if delay <= _ROUNDING:
            return True
        self._retry_at = min(self._retry_at, shared.now + max(delay, _TICK))
        if admission.busy(offer) or len(shared.members) == 1:
            # It is the best even after its wait: no other that is free now is better.
            pool.waits_for = offer.member
        return False

    def _with_slot(self, pool: Pool, ticket: Ticket, cached: Mapping[str, int]) -> Sequence[Member]:
        """The backends to choose from: what the ticket may use and has a slot for the class."""
        books = self._books
        found = books.fleet.candidates(pool.name, ticket.model, ticket.avoid)
        open_ones: Sequence[Member]
        if len(found) <= WINDOW:
            open_ones = self._open(found, pool)
        elif self._all_open(pool):
            open_ones = books.chooser.look_at(found, ticket, cached)
        else:
            few = books.chooser.look_at(found, ticket, cached)
            open_ones = self._open(few, pool) or self._open(found, pool)
        if len(open_ones) < 2:
            return open_ones
        return books.chooser.pick(open_ones, ticket)

    def _all_open(self, pool: Pool) -> bool:
        """Whether certainly no backend is full or claimed, so that a big fleet is not walked."""
        fleet = self._books.fleet
        return pool.smallest and self._claimed is None and fleet.vacant == len(fleet)

    def _open(self, members: Sequence[Member], pool: Pool) -> list[Member]:
        claimed = self._claimed
        found = [m for m in members if m.vacant and m is not claimed]
        if pool.smallest:
            return found
        return [m for m in found if self._books.pools.has_slot(m, pool)]

    def _openings(self, ticket: Ticket, now: float) -> Openings:
        books = self._books
        smallest = books.pools.smallest
        members = books.fleet.candidates(smallest.name, ticket.model, _NOBODY)
        few = books.chooser.look_at(members, ticket, {})
        return Openings(members, few, target=smallest.spec.ttft_target, now=now)


def _oldest(pools: Sequence[Pool]) -> Pool:
    """The class of the least rank; the first of equal ones."""
    first, least = pools[0], _rank(pools[0])
    for pool in pools[1:]:
        rank = _rank(pool)
        if rank < least:
            first, least = pool, rank
    return first


def _rank(pool: Pool) -> float:
    """When the class's next ticket came, as ranks count it, or when it was served last."""
    rank = pool.queue.turns()[0].queued.rank
    if pool.smallest:
        return rank
    last_served = pool.last_served
    return (rank if rank > last_served else last_served) + pool.lead
