"""The scheduler: events in, commands out, and nothing else.

`handle` first lets the time that has passed do its work (deadlines, limit recovery), then
applies the event, then dispatches whatever may go, smaller classes first. The caller carries
out the commands and sends `Woke` when `WakeAt` says so. Order, room and choice live in
`queues`, `admission` and `placement`; this file knows only when to ask them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.admission import class_slots, has_room
from scheduler.burst import PoolLimit
from scheduler.events import (
    Abandoned,
    Arrived,
    BackendChanged,
    BackendRemoved,
    Cancel,
    Command,
    Decided,
    Dispatch,
    Drain,
    Event,
    Failed,
    Finished,
    FirstToken,
    LoadSeen,
    Progress,
    Reason,
    Reject,
    SettingsChanged,
    WakeAt,
    Woke,
    cause_of,
)
from scheduler.fleet import Fleet, Flight, Member
from scheduler.lazyheap import LazyHeap
from scheduler.model import ClassSpec, Settings, Ticket
from scheduler.placement import best
from scheduler.queues import ClassQueue, Lane, Queued
from scheduler.snapshot import BackendView, PoolView, Snapshot

_RETRY_AFTER_MIN = 1.0
_RETRY_AFTER_MAX = 120.0
# Without a backend there is no rate to compute with; probes run every few seconds.
_RETRY_AFTER_DOWN = 5.0


@dataclass(slots=True)
class _Pool:
    """One class: its queue, its limit, and what it has in flight anywhere."""

    spec: ClassSpec
    queue: ClassQueue
    limit: PoolLimit
    in_flight: int = 0
    bursty: int = 0


@dataclass(slots=True)
class _Turn:
    """One call of `handle`: its time, what caused it, and the commands so far."""

    now: float
    cause: str
    commands: list[Command] = field(default_factory=list)


class Scheduler:
    """Decides class, order, admission and placement of tickets.

    Times are seconds on the caller's monotonic clock and must not run backwards.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fleet = Fleet()
        self._flights: dict[str, Flight] = {}
        self._queued_in: dict[str, _Pool] = {}
        self._expiry = LazyHeap()
        self._pools: dict[str, _Pool] = {}
        self._draining = False
        self._announced: float | None = None
        self._build_pools()
        self._apply: dict[type[Event], Callable[[Any, _Turn], None]] = {
            Arrived: self._on_arrived,
            FirstToken: self._on_first_token,
            Progress: self._on_nothing,
            Finished: self._on_ended,
            Failed: self._on_ended,
            Abandoned: self._on_ended,
            BackendChanged: self._on_backend_changed,
            BackendRemoved: self._on_backend_removed,
            LoadSeen: self._on_nothing,
            SettingsChanged: self._on_settings_changed,
            Drain: self._on_drain,
            Woke: self._on_nothing,
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """Apply one event at time `now` and return what the caller must do, in order.

        Reports about tickets that are unknown or already over are ignored, and so is an
        `Arrived` whose id is still live.
        """
        turn = _Turn(now, cause_of(event))
        self._pass_time(turn)
        self._apply[type(event)](event, turn)
        self._pump(turn)
        self._announce(turn)
        return turn.commands

    def next_wakeup(self) -> float | None:
        """The next time at which something happens without an event, or None."""
        times = [p.limit.next_step for p in self._pools.values() if p.limit.next_step is not None]
        if (first := self._expiry.first()) is not None:
            times.append(first[0])
        return min(times, default=None)

    def snapshot(self) -> Snapshot:
        """The counts of this moment, for metrics; costs one step per class and backend."""
        pools = tuple(
            PoolView(
                service_class=name,
                queued=len(pool.queue),
                queued_tokens=pool.queue.tokens,
                in_flight=pool.in_flight,
                limit_configured=pool.limit.configured,
                limit_effective=pool.limit.effective,
            )
            for name, pool in self._pools.items()
        )
        backends = tuple(
            BackendView(m.backend.name, m.in_flight, m.backend.limit, m.prefill_backlog)
            for m in self._fleet
        )
        return Snapshot(pools, backends, self._draining)

    def check(self) -> None:
        """Assert that the books agree with each other. Costs a step per ticket: for tests."""
        queued = {q.ticket.id: pool for pool in self._pools.values() for q in pool.queue}
        assert queued == self._queued_in, "the queues and their index differ"
        assert not queued.keys() & self._flights.keys(), "a ticket is queued and in flight"
        assert len(self._expiry) == len(queued), "a queued ticket has no deadline, or a ghost has"
        ledger = {k: f for m in self._fleet for k, f in m.flights.items()}
        assert ledger == self._flights, "the ledgers and the index of flights differ"
        for member in self._fleet:
            flights = member.flights.values()
            backlog = sum(f.ticket.prompt_tokens for f in flights if f.prefilling)
            assert member.prefill_backlog == backlog, "a backlog has drifted"
            assert sum(member.by_class.values()) == len(flights), "a class count has drifted"
            assert flights or not member.removed, "a removed backend without streams lingers"
        for name, pool in self._pools.items():
            mine = [f for f in self._flights.values() if f.service_class == name]
            assert pool.in_flight == len(mine), "a pool's count has drifted"
            assert pool.bursty == sum(self._bursty(f.ticket) for f in mine)
            assert pool.queue.tokens == sum(q.ticket.prompt_tokens for q in pool.queue)
            assert 1 <= pool.limit.effective <= pool.limit.configured
        assert not (self._draining and queued), "draining, yet tickets are queued"

    def __repr__(self) -> str:
        pools = ", ".join(
            f"{name}: {len(p.queue)} queued {p.in_flight}/{p.limit.effective} in flight"
            for name, p in self._pools.items()
        )
        backends = ", ".join(
            f"{m.backend.name}: {m.backend.state.value} {m.in_flight}/{m.backend.limit}"
            for m in self._fleet
        )
        state = " draining" if self._draining else ""
        return f"<Scheduler{state} [{pools}] [{backends}]>"

    # --- events -----------------------------------------------------------------------------

    def _on_arrived(self, event: Arrived, turn: _Turn) -> None:
        ticket = event.ticket
        if ticket.id in self._queued_in or ticket.id in self._flights:
            return
        pool = self._pool_of(ticket)
        if (refusal := self._refusal(ticket, turn.now)) is not None:
            self._reject(ticket, pool, refusal, turn)
            return
        self._note_burst(ticket, pool, turn)
        self._enqueue(ticket, pool, turn.now)
        self._pump(turn)
        if ticket.id in self._queued_in and len(pool.queue) > pool.spec.queue_limit:
            self._reject(self._dequeue(ticket.id).ticket, pool, Reason.QUEUE_FULL, turn)

    def _on_first_token(self, event: FirstToken, turn: _Turn) -> None:
        flight = self._flights.get(event.ticket_id)
        if flight is not None:
            flight.member.first_token(flight)

    def _on_ended(self, event: Finished | Failed | Abandoned, turn: _Turn) -> None:
        flight = self._flights.pop(event.ticket_id, None)
        if flight is None:
            if isinstance(event, Abandoned) and event.ticket_id in self._queued_in:
                self._dequeue(event.ticket_id)
            return
        flight.member.close(flight)
        self._fleet.release(flight.member)
        self._count(flight, -1)

    def _on_backend_changed(self, event: BackendChanged, turn: _Turn) -> None:
        self._fleet.put(event.backend)
        self._fleet_changed(turn)

    def _on_backend_removed(self, event: BackendRemoved, turn: _Turn) -> None:
        member = self._fleet.remove(event.name)
        if member is not None and event.cancel:
            turn.commands += [Cancel(ticket_id, turn.cause) for ticket_id in member.flights]
        self._fleet_changed(turn)

    def _on_settings_changed(self, event: SettingsChanged, turn: _Turn) -> None:
        waiting = sorted(
            (self._dequeue(ticket_id) for ticket_id in tuple(self._queued_in)),
            key=lambda queued: queued.arrived,
        )
        self._settings = event.settings
        self._build_pools()
        for queued in waiting:
            self._insert(queued, self._pool_of(queued.ticket))
        for flight in self._flights.values():
            self._count(flight, 1)

    def _on_drain(self, event: Drain, turn: _Turn) -> None:
        self._draining = True
        for ticket_id, pool in tuple(self._queued_in.items()):
            self._reject(self._dequeue(ticket_id).ticket, pool, Reason.DRAINING, turn)

    def _on_nothing(self, event: Event, turn: _Turn) -> None:
        """The event changes nothing by itself; time passed all the same."""

    # --- time and dispatch ------------------------------------------------------------------

    def _pass_time(self, turn: _Turn) -> None:
        while (first := self._expiry.first()) is not None and first[0] <= turn.now:
            pool = self._queued_in[first[1]]
            self._reject(self._dequeue(first[1]).ticket, pool, Reason.EXPIRED, turn)
        for name, pool in self._pools.items():
            before = pool.limit.effective
            if pool.limit.recover(turn.now):
                turn.commands.append(
                    Decided(name, "limit recovers", before, pool.limit.effective, turn.cause)
                )

    def _pump(self, turn: _Turn) -> None:
        for name, pool in self._pools.items():
            while self._serve_one(name, pool, turn):
                pass

    def _serve_one(self, name: str, pool: _Pool, turn: _Turn) -> bool:
        """Dispatch the ticket of the class whose turn it is, if any may go."""
        if not len(pool.queue) or pool.in_flight >= pool.limit.effective:
            return False
        for tag, ticket_id, lane in pool.queue.turns():
            member = self._choose(name, lane, pool.queue[ticket_id].ticket)
            if member is not None:
                self._dispatch(ticket_id, tag, member, turn)
                return True
        return False

    def _choose(self, name: str, lane: Lane, ticket: Ticket) -> Member | None:
        smallest, reserve = self._smallest, self._settings.short_reserve
        candidates = self._fleet.candidates(name, lane.model, lane.avoid)
        return best((m for m in candidates if has_room(m, name, smallest, reserve)), ticket)

    def _dispatch(self, ticket_id: str, tag: float, member: Member, turn: _Turn) -> None:
        pool = self._queued_in.pop(ticket_id)
        self._expiry.discard(ticket_id)
        ticket = pool.queue.serve(ticket_id, tag).ticket
        flight = Flight(ticket, pool.spec.name, member, turn.now)
        self._flights[ticket_id] = flight
        member.open(flight)
        self._count(flight, 1)
        turn.commands.append(Dispatch(ticket_id, member.backend.name, pool.spec.name, turn.cause))

    def _announce(self, turn: _Turn) -> None:
        """Ask to be woken, unless an announced time that still lies ahead is early enough."""
        wakeup = self.next_wakeup()
        if self._announced is not None and self._announced <= turn.now:
            self._announced = None
        if wakeup is not None and (self._announced is None or wakeup < self._announced):
            self._announced = wakeup
            turn.commands.append(WakeAt(wakeup, turn.cause))

    # --- books ------------------------------------------------------------------------------

    def _build_pools(self) -> None:
        """Make a pool per class, smallest first, keeping the limits of classes that stay."""
        unbounded = float("inf")
        ordered = sorted(
            self._settings.classes,
            key=lambda s: unbounded if s.max_prompt_tokens is None else s.max_prompt_tokens,
        )
        before = self._pools
        self._pools = {}
        for spec in ordered:
            old = before.get(spec.name)
            limit = PoolLimit(self._settings.burst, 1) if old is None else old.limit
            self._pools[spec.name] = _Pool(spec, ClassQueue(), limit)
        self._smallest = ordered[0].name
        self._configure_limits()

    def _configure_limits(self) -> None:
        settings = self._settings
        for name, pool in self._pools.items():
            slots = sum(
                class_slots(m, name, self._smallest, settings.short_reserve)
                for m in self._fleet.pool(name)
            )
            limit = slots if pool.spec.limit is None else pool.spec.limit
            pool.limit.configure(settings.burst, limit)

    def _fleet_changed(self, turn: _Turn) -> None:
        """Refit the limits, and refuse tickets that nothing alive could serve any more."""
        self._configure_limits()
        hopeless = {m: not self._fleet.alive(m) for m in self._queued_models()}
        for ticket_id, pool in tuple(self._queued_in.items()):
            if hopeless[pool.queue[ticket_id].ticket.model]:
                self._reject(self._dequeue(ticket_id).ticket, pool, Reason.NO_BACKEND, turn)

    def _queued_models(self) -> set[str]:
        return {q.ticket.model for pool in self._pools.values() for q in pool.queue}

    def _pool_of(self, ticket: Ticket) -> _Pool:
        for pool in self._pools.values():
            bound = pool.spec.max_prompt_tokens
            if bound is None or ticket.prompt_tokens <= bound:
                return pool
        raise AssertionError("Settings guarantees an unbounded class")

    def _refusal(self, ticket: Ticket, now: float) -> Reason | None:
        if self._draining:
            return Reason.DRAINING
        if self._fleet.alive(ticket.model):
            late = ticket.deadline is not None and ticket.deadline <= now
            return Reason.EXPIRED if late else None
        if len(self._fleet) == 0 or self._fleet.known(ticket.model):
            return Reason.NO_BACKEND
        return Reason.UNKNOWN_MODEL

    def _note_burst(self, ticket: Ticket, pool: _Pool, turn: _Turn) -> None:
        if not self._bursty(ticket) or pool.bursty < self._settings.burst.in_flight:
            return
        before = pool.limit.effective
        if pool.limit.halve(turn.now):
            what = f"burst: a prompt of {ticket.prompt_tokens} tokens, {pool.bursty} in flight"
            turn.commands.append(
                Decided(pool.spec.name, what, before, pool.limit.effective, turn.cause)
            )

    def _bursty(self, ticket: Ticket) -> bool:
        return ticket.prompt_tokens > self._settings.burst.prompt_tokens

    def _enqueue(self, ticket: Ticket, pool: _Pool, now: float) -> None:
        expires = now + self._settings.queue_wait if ticket.deadline is None else ticket.deadline
        rank = now - ticket.priority * self._settings.ageing
        self._insert(Queued(ticket, now, expires, rank), pool)

    def _insert(self, queued: Queued, pool: _Pool) -> None:
        pool.queue.add(queued)
        self._queued_in[queued.ticket.id] = pool
        self._expiry.push(queued.ticket.id, queued.expires)

    def _dequeue(self, ticket_id: str) -> Queued:
        pool = self._queued_in.pop(ticket_id)
        self._expiry.discard(ticket_id)
        return pool.queue.remove(ticket_id)

    def _count(self, flight: Flight, step: int) -> None:
        pool = self._pools.get(flight.service_class)
        if pool is not None:
            pool.in_flight += step
            pool.bursty += step * self._bursty(flight.ticket)

    def _reject(self, ticket: Ticket, pool: _Pool, reason: Reason, turn: _Turn) -> None:
        if reason in (Reason.QUEUE_FULL, Reason.EXPIRED):
            retry_after = self._drain_time(pool)
        else:
            retry_after = _RETRY_AFTER_DOWN
        turn.commands.append(Reject(ticket.id, reason, retry_after, pool.spec.name, turn.cause))

    def _drain_time(self, pool: _Pool) -> float:
        """Seconds until what is queued now will have been prefilled, within 1 to 120."""
        rate = sum(m.backend.prefill_rate for m in self._fleet.pool(pool.spec.name))
        if not rate:
            return _RETRY_AFTER_DOWN
        return min(max(pool.queue.tokens / rate, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX)
