"""Proof that the scheduler's books agree with each other; for tests and simulations."""

from math import inf

from scheduler.books import Books


def check(books: Books) -> None:
    """Assert all invariants. Costs a step per ticket."""
    _check_tickets(books)
    assert all(m.vacant is m.has_room() for m in books.fleet), "a vacancy has drifted"
    assert books.fleet.vacant == sum(m.vacant for m in books.fleet), "vacancies have drifted"
    for member in books.fleet:
        flights = member.flights.values()
        backlog = sum(f.tokens for f in flights if f.prefilling)
        assert member.prefill_backlog == backlog, "a backlog has drifted"
        assert 0 <= member.near_backlog <= backlog, "a near backlog has drifted"
        assert bool(member.near_backlog) == bool(backlog), "a near backlog has drifted"
        cached = sum(f.cached for f in flights if f.prefilling)
        assert member.cached_backlog == cached, "a backlog of cached tokens has drifted"
        assert member.blocking == sum(f.prefilling and f.blocking for f in flights)
        assert sum(member.by_class.values()) == len(flights), "a class count has drifted"
        assert flights or not member.removed, "a removed backend without streams lingers"
    for pool in books.pools:
        mine = [f for f in books.flights.values() if f.service_class == pool.name]
        assert pool.in_flight == len(mine), "a pool's count has drifted"
        assert pool.bursty == sum(f.prefilling and f.bursty for f in mine)
        queued = [entry.ticket for entry in pool.queue]
        assert all(entry.service_class == pool.name for entry in pool.queue)
        held = pool.queue.held
        assert held.tickets == len(queued)
        assert held.tokens == sum(t.prompt_tokens for t in queued)
        assert held.body_bytes == sum(t.body_bytes for t in queued)
        if pool.queue.shares is not None:
            tenants = pool.queue.shares.held
            assert tenants.keys() == {t.tenant for t in queued}
            assert sum(own.tickets for own in tenants.values()) == held.tickets
            assert sum(own.tokens for own in tenants.values()) == held.tokens
    _check_limits(books)


def _check_tickets(books: Books) -> None:
    queued = {entry.ticket.id: entry for pool in books.pools for entry in pool.queue}
    assert queued == books.waiting, "the queues and their index differ"
    assert not queued.keys() & books.flights.keys(), "a ticket is queued and in flight"
    assert len(books.expiry) == len(queued), "a queued ticket has no deadline, or a ghost has"
    ledger = {key: flight for member in books.fleet for key, flight in member.flights.items()}
    assert ledger == books.flights, "the ledgers and the index of flights differ"
    assert not (books.draining and queued), "draining, yet tickets are queued"


def _check_limits(books: Books) -> None:
    limits = {m.backend.name: m.limit for m in books.fleet}
    limits |= {p.name: p.limit for p in books.pools}
    for name, limit in limits.items():
        assert 1 <= limit.effective <= limit.configured
        assert limit.effective == limit.configured or name in books.recovering
    steps = [limit.next_step for name, limit in limits.items() if name in books.recovering]
    due = min((step for step in steps if step is not None), default=inf)
    assert books.recovering.next_step == due, "the next step of recovery has drifted"
