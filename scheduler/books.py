"""The scheduler's state: which ticket waits where, which flies where. No decisions.

Every ticket that the scheduler holds is in exactly one of two indexes, `waiting` or `flights`;
all moves between them go through this file, so that counts, queues, deadlines and ledgers
change together. `audit.check` proves that they did.
"""

from dataclasses import replace
from math import inf

from scheduler.admission import Admission, Offer
from scheduler.affinity import PrefixMap
from scheduler.burst import Recovering
from scheduler.fleet import Fleet
from scheduler.lazyheap import LazyHeap
from scheduler.ledger import Flight
from scheduler.model import Backend, Settings, Ticket
from scheduler.placement import Chooser
from scheduler.pools import Pool, Pools
from scheduler.queues import Head, Queued


class Books:
    """All mutable state of one scheduler."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.fleet = Fleet()
        self.pools = Pools(settings)
        self.admission = Admission(settings)
        self.chooser = Chooser(settings.placement)
        self.prefixes = PrefixMap(settings.affinity)
        self.flights: dict[str, Flight] = {}
        self.waiting: dict[str, Queued] = {}
        self.expiry: LazyHeap[Queued] = LazyHeap()
        self.recovering = Recovering()
        """Limits that are not whole, by the name of their pool or backend."""
        self.stirred = False
        """Whether, since tickets were dispatched last, one more may have become able to go."""
        self.draining = False

    def arrived(self, ticket: Ticket, pool: Pool, work: int, now: float) -> Queued:
        """Give a new ticket its deadline and its rank, and count it."""
        settings = self.settings
        expires = now + settings.queue_wait if ticket.deadline is None else ticket.deadline
        if ticket.answer_by is not None:
            expires = min(expires, ticket.answer_by - self._fastest(ticket, pool, work))
        # Earliest deadline first, as if everyone had arrived `queue_wait` before its deadline;
        # a deadline later than the usual one is no reason to stand further back.
        usual = expires - settings.queue_wait
        rank = usual if usual < now else now
        if ticket.priority:
            rank -= ticket.priority * settings.ageing
        queued = Queued(ticket, pool.name, now, expires, rank, work)
        self.admission.arrived(queued, pool, now)
        return queued

    def insert(self, queued: Queued, pool: Pool) -> None:
        empty = pool.queue.held.tickets == 0
        if pool.queue.add(queued) or empty or not pool.smallest:
            pool.wake()
        self.waiting[queued.ticket.id] = queued
        self.expiry.push(queued, queued.expires)
        self.stirred = True

    def dequeue(self, queued: Queued) -> Pool:
        """Take a ticket that will not be served out of its class's queue."""
        pool = self.pools[queued.service_class]
        del self.waiting[queued.ticket.id]
        pool.queue.remove(queued)
        self.expiry.left()
        if not pool.queue:
            # Its idle backends may serve others now.
            self.wake_pools()
        return pool

    def serve(self, head: Head, pool: Pool) -> None:
        """Take the ticket whose turn it is out of the queue."""
        del self.waiting[head.queued.ticket.id]
        pool.queue.serve(head)
        self.expiry.left()

    def launch(self, ticket: Ticket, pool: Pool, offer: Offer, now: float) -> None:
        """Enter a ticket that waits no more into a backend's ledger."""
        member = offer.member
        settings, cost = self.settings, member.cost
        tokens, cached = offer.tokens, offer.cached
        blocking = tokens > settings.hold.step_tokens
        bursty = tokens > settings.burst.prompt_tokens
        lengthy = cached * cost.per_cached > settings.hold.ahead
        # Without what an engine takes beside the prefill: when that grows, tokens come late.
        read = member.cached_backlog + cached
        expected = now + cost.share(member.prefill_backlog + tokens, read)
        flight = Flight(
            ticket,
            pool.name,
            member,
            now,
            tokens,
            cached,
            blocking,
            bursty,
            lengthy,
            expected,
        )
        self.flights[ticket.id] = flight
        member.open(flight)
        if not member.has_room():
            self.fleet.filled(member)
        pool.served.add(ticket.prompt_tokens, now)
        pool.last_served = now
        pool.in_flight += 1
        pool.bursty += bursty
        if ticket.prefix or ticket.session:
            self.prefixes.dispatched(ticket, member.backend, tokens, now)

    def first_token(self, ticket_id: str, now: float) -> Flight | None:
        """End a flight's prefill; None when there is none."""
        flight = self.flights.get(ticket_id)
        if flight is None or not flight.prefilling:
            return None
        if flight.bursty:
            self.pools.first_token(flight)
        flight.member.first_token(flight, now)
        self._prefilled(flight)
        return flight

    def progress(self, ticket_id: str, tokens: int, now: float) -> None:
        flight = self.flights.get(ticket_id)
        if flight is not None and not flight.prefilling:
            flight.member.progress(flight, tokens, now)

    def land(self, ticket_id: str, now: float) -> Flight | None:
        """End a flight, whatever ended it; None when there is none."""
        flight = self.flights.pop(ticket_id, None)
        if flight is None:
            return None
        member = flight.member
        prefilling, was_full = flight.prefilling, not member.vacant
        self.pools.count(flight, -1)
        member.close(flight, now)
        if was_full and member.has_room():
            self.fleet.emptied(member)
        if member.removed:
            self.fleet.release(member)
        name = flight.service_class
        if was_full or name != self.pools.smallest.name or member.lends_to(name):
            self.wake_pools()
        elif prefilling:
            self._prefilled(flight)
        return flight

    def limit_changed(self) -> None:
        """A backend's or a pool's limit is another."""
        self.fleet.recount()
        self.wake_pools()

    def wake_pools(self) -> None:
        """A backend may have room that it had not: every class is asked again."""
        self.stirred = True
        for pool in self.pools.ordered:
            pool.asleep_until, pool.needs_slot = -inf, False

    def _prefilled(self, flight: Flight) -> None:
        """A prefill is over: that matters to who waits for a backend to get through its own."""
        if (
            self.waiting
            and self.fleet.vacant
            and (flight.blocking or flight.lengthy or flight.member.idle)
        ):
            self.stirred = True
            for pool in self.pools.ordered:
                if not pool.needs_slot:
                    pool.asleep_until = -inf

    def put_backend(self, backend: Backend) -> None:
        self.fleet.put(backend, self.settings.adapt)
        self.fit_limits()

    def resettle(self, settings: Settings) -> None:
        """Put new settings in force: queues are sorted anew, in order of arrival."""
        waiting = sorted(self.waiting.values(), key=lambda queued: queued.arrived)
        for queued in waiting:
            self.dequeue(queued)
        if settings.affinity != self.settings.affinity:
            self.prefixes = PrefixMap(settings.affinity)
        self.settings = settings
        self.pools = Pools(settings, self.pools)
        self.admission = Admission(settings, self.admission)
        self.chooser = Chooser(settings.placement)
        for member in self.fleet:
            member.limit.configure(settings.adapt, member.backend.limit)
        self.fleet.recount()
        self.recovering = Recovering()
        for member in self.fleet:
            self.recovering.put(member.backend.name, member.limit)
        for pool in self.pools:
            self.recovering.put(pool.name, pool.limit)
        self.fit_limits()
        for queued in waiting:
            pool = self.class_of(queued.ticket, queued.work)
            self.insert(replace(queued, service_class=pool.name, gone=False), pool)
        for flight in self.flights.values():
            self.pools.count(flight, 1)

    def fit_limits(self) -> None:
        """Refit the pools' limits to the backends that there are."""
        for pool in self.pools:
            members, lenders = self.fleet.pool(pool.name), self.fleet.lending(pool.spec)
            self.pools.configure(pool, members, lenders)
        self.wake_pools()

    def class_of(self, ticket: Ticket, work: int) -> Pool:
        return self.pools.of(work if self.settings.class_by_uncached else ticket.prompt_tokens)

    def work_of(self, ticket: Ticket, now: float) -> int:
        """The tokens that an engine has to compute, if the ticket goes where most are cached."""
        if ticket.prefix or ticket.session:
            held = self.prefixes.cached_tokens(ticket, now)
            if held:
                return ticket.prompt_tokens - max(held.values())
        return ticket.prompt_tokens

    def _fastest(self, ticket: Ticket, pool: Pool, work: int) -> float:
        """Seconds that the prompt's prefill takes on the best backend, if that were idle."""
        members = self.fleet.candidates(pool.name, ticket.model, ticket.avoid)
        cached = ticket.prompt_tokens - work
        return min((m.cost.seconds(work, cached) for m in members), default=0.0)
