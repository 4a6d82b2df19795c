"""Sends waiting tickets on, as long as any may go.

Asks the queues whose turn it is, placement which backend would be best, and admission whether
that one may begin now; remembers when to ask again.
"""

from dataclasses import dataclass
from math import inf

from scheduler.admission import Openings
from scheduler.books import Books
from scheduler.events import Dispatch
from scheduler.ledger import Member
from scheduler.placement import by_preference, offers
from scheduler.pools import Pool
from scheduler.queues import Lane, Queued
from scheduler.turn import Turn

# Waking earlier than this after a decision would find nothing changed but rounding.
_TICK = 0.001
_NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Pass:
    """What one pump has found so far: who is blocked, and which backend is spoken for."""

    turn: Turn
    claimed: Member | None = None
    blocked_on: Member | None = None


class Dispatcher:
    """Moves tickets from the queues to the backends."""

    __slots__ = ("_books", "retry_at")

    def __init__(self, books: Books) -> None:
        self._books = books
        self.retry_at: float | None = None
        """When a ticket that may not go yet could go without a further event."""

    def pump(self, turn: Turn) -> None:
        """Dispatch every ticket that may go now; classes in the order of their oldest rank.

        A class that is ahead by age but waits for a busy backend claims it, so that smaller
        classes cannot keep that backend busy for ever.
        """
        self.retry_at = None
        state = _Pass(turn)
        waiting = [pool for pool in self._books.pools if len(pool.queue)]
        while waiting:
            pool = min(waiting, key=_rank) if len(waiting) > 1 else waiting[0]
            if self._serve_one(pool, state):
                if not len(pool.queue):
                    waiting.remove(pool)
                continue
            waiting.remove(pool)
            if not pool.smallest and state.claimed is None:
                state.claimed = state.blocked_on

    def _serve_one(self, pool: Pool, state: _Pass) -> bool:
        """Dispatch the class's ticket whose turn it is, if any may go."""
        state.blocked_on = None
        if pool.in_flight >= pool.limit.effective:
            return False
        turn = state.turn
        for tag, ticket_id, lane in pool.queue.turns():
            member = self._choose(pool, lane, pool.queue[ticket_id], state)
            if member is not None:
                self._books.dispatch(ticket_id, tag, member, turn.now)
                turn.tell(Dispatch(ticket_id, member.backend.name, pool.name, turn.cause))
                return True
        return False

    def _choose(self, pool: Pool, lane: Lane, queued: Queued, state: _Pass) -> Member | None:
        """The backend that the ticket goes to now, or None and a note of what it waits for."""
        books, now, ticket = self._books, state.turn.now, queued.ticket
        candidates = books.fleet.candidates(pool.name, lane.model, lane.avoid)
        has_slot = books.pools.has_slot
        open_ones = [m for m in candidates if has_slot(m, pool) and m is not state.claimed]
        if not open_ones:
            state.blocked_on = min(candidates, key=lambda m: m.in_flight, default=None)
            return None
        cached = books.prefixes.cached_tokens(ticket, now)
        made = offers(books.chooser.pick(open_ones, ticket), ticket, cached, now)
        shared = Openings(
            books.fleet.candidates(books.pools.smallest.name, lane.model, _NOBODY), now
        )
        for offer in by_preference(made):
            delay = books.admission.delay(offer, pool, queued, shared)
            if delay <= 0.0:
                return offer.member
            self._note(now + max(delay, _TICK))
            if books.admission.busy(offer):
                # It is the best even after its wait: no other that is free now is better.
                state.blocked_on = offer.member
                return None
        return None

    def _note(self, at: float) -> None:
        if at < inf and (self.retry_at is None or at < self.retry_at):
            self.retry_at = at


def _rank(pool: Pool) -> float:
    """When the class's next ticket came, as ranks count it."""
    _, ticket_id, _ = pool.queue.turns()[0]
    return pool.queue[ticket_id].rank + pool.lead
