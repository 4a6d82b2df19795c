"""The scheduler: events in, commands out, and nothing else.

`handle` first lets the time that has passed do its work (deadlines, limit recovery), then
applies the event, then dispatches whatever may go. The caller carries out the commands and
sends `Woke` when `WakeAt` says so. State lives in `books`; who goes next, where, and whether
now is decided by `queues`, `placement` and `admission`, which `dispatch` asks in that order.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from scheduler.audit import check
from scheduler.books import Books
from scheduler.burst import AdaptiveLimit
from scheduler.dispatch import Dispatcher
from scheduler.events import (
    Abandoned,
    Arrived,
    BackendChanged,
    BackendRemoved,
    Cancel,
    Command,
    Decided,
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
)
from scheduler.ledger import Load
from scheduler.model import BackendState, Settings, Ticket
from scheduler.pools import Pool
from scheduler.queues import Queued
from scheduler.snapshot import Snapshot, describe, view
from scheduler.turn import Turn

_RETRY_AFTER_MIN = 1.0
_RETRY_AFTER_MAX = 120.0
# Without a backend there is no rate to compute with; probes run every few seconds.
_RETRY_AFTER_DOWN = 5.0
# Refusals that end as the queue drains.
_FOR_NOW = (Reason.QUEUE_FULL, Reason.TENANT_QUEUE_FULL, Reason.EXPIRED)


class Scheduler:
    """Decides class, order, admission and placement of tickets.

    Times are seconds on the caller's monotonic clock and must not run backwards.
    """

    def __init__(self, settings: Settings) -> None:
        self._books = Books(settings)
        self._dispatcher = Dispatcher(self._books)
        self._announced = inf
        self._apply: dict[type[Event], Callable[[Any, Turn], None]] = {
            Arrived: self._on_arrived,
            FirstToken: self._on_first_token,
            Progress: self._on_progress,
            Finished: self._on_ended,
            Failed: self._on_failed,
            Abandoned: self._on_abandoned,
            BackendChanged: self._on_backend_changed,
            BackendRemoved: self._on_backend_removed,
            LoadSeen: self._on_load_seen,
            SettingsChanged: self._on_settings_changed,
            Drain: self._on_drain,
            Woke: self._on_woke,
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """Apply one event at time `now` and return what the caller must do, in order.

        Reports about tickets that are unknown or already over are ignored, and so is an
        `Arrived` whose id is still live.
        """
        turn, books = Turn(event, now), self._books
        if now >= self._announced:
            # Whatever is due was announced for this time or an earlier one.
            self._announced, books.stirred = inf, True
            self._pass_time(turn)
        self._apply[type(event)](event, turn)
        if books.stirred:
            books.stirred = False
            self._settle(turn)
        return turn.commands

    def _settle(self, turn: Turn) -> None:
        """Something changed: dispatch whatever may go now, and ask for the next wake-up."""
        books = self._books
        if books.waiting:
            if books.fleet.vacant:
                self._dispatcher.pump(turn)
            newcomer = turn.newcomer
            if newcomer is not None and not newcomer.gone:
                # It could not go at once: it may make its queue too long.
                refusal = books.pools[newcomer.service_class].refusal(newcomer.ticket)
                if refusal is not None:
                    self._reject_queued(newcomer, refusal, turn)
            # Where no slot is free nothing but a deadline comes with time, and only a newcomer's
            # can be sooner than what was announced.
            if (
                books.fleet.vacant
                or books.recovering.next_step < inf
                or self._announced == inf
                or (newcomer is not None and newcomer.expires < self._announced)
            ):
                self._announce(turn)
        elif books.recovering.next_step < inf:
            self._announce(turn)

    def next_wakeup(self) -> float | None:
        """The next time at which something happens without an event, or None."""
        at = self._next_due()
        return None if at == inf else at

    def snapshot(self) -> Snapshot:
        """The counts of this moment, for metrics; costs one step per class and backend."""
        return view(self._books)

    def check(self) -> None:
        """Assert that the books agree with each other. Costs a step per ticket: for tests."""
        check(self._books)

    def __repr__(self) -> str:
        return describe(self._books)

    def _pass_time(self, turn: Turn) -> None:
        books = self._books
        while (queued := books.expiry.due(turn.now)) is not None:
            self._reject_queued(queued, Reason.EXPIRED, turn)
        recovered = books.recovering.recover(turn.now)
        if recovered:
            books.limit_changed()
        for name, before, after in recovered:
            turn.commands.append(Decided(name, "limit recovers", before, after, turn.cause()))

    def _announce(self, turn: Turn) -> None:
        """Ask to be woken, unless an announced time that still lies ahead is early enough."""
        wakeup = self._next_due()
        if wakeup < self._announced:
            self._announced = wakeup
            turn.commands.append(WakeAt(wakeup, turn.cause()))

    def _next_due(self) -> float:
        books = self._books
        at = books.recovering.next_step
        if books.waiting:
            at = min(at, self._dispatcher.retry_at, books.expiry.least())
        return at

    # --- tickets ----------------------------------------------------------------------------

    def _on_arrived(self, event: Arrived, turn: Turn) -> None:
        books, ticket = self._books, event.ticket
        if ticket.id in books.waiting or ticket.id in books.flights:
            return
        work = books.work_of(ticket, turn.now)
        pool = books.class_of(ticket, work)
        if books.draining or not books.fleet.alive(ticket.model):
            self._reject(ticket, pool, self._refusal(ticket), turn)
            return
        if work > books.settings.burst.prompt_tokens:
            self._note_burst(work, pool, turn)
        queued = books.arrived(ticket, pool, work, turn.now)
        if queued.expires <= turn.now:
            self._reject(ticket, pool, Reason.EXPIRED, turn)
        elif books.waiting or not self._dispatcher.at_once(queued, pool, turn):
            books.insert(queued, pool)
            turn.newcomer = queued

    def _refusal(self, ticket: Ticket) -> Reason:
        """Why nobody can serve a ticket."""
        books = self._books
        if books.draining:
            return Reason.DRAINING
        if len(books.fleet) == 0 or books.fleet.known(ticket.model):
            return Reason.NO_BACKEND
        return Reason.UNKNOWN_MODEL

    def _on_first_token(self, event: FirstToken, turn: Turn) -> None:
        flight = self._books.first_token(event.ticket_id, turn.now)
        if flight is None or turn.now <= flight.expected:
            return
        pool = self._books.pools.get(flight.service_class)
        if pool is not None and turn.now - flight.expected > pool.spec.ttft_target:
            member = flight.member
            if member.late.triggers(self._books.settings.adapt, turn.now):
                self._halve(member.backend.name, member.limit, "first tokens come late", turn)

    def _on_progress(self, event: Progress, turn: Turn) -> None:
        self._books.progress(event.ticket_id, event.tokens, turn.now)

    def _on_ended(self, event: Finished, turn: Turn) -> None:
        self._books.land(event.ticket_id, turn.now)

    def _on_failed(self, event: Failed, turn: Turn) -> None:
        flight = self._books.land(event.ticket_id, turn.now)
        if flight is not None and event.busy:
            member = flight.member
            self._halve(member.backend.name, member.limit, "the engine is busy", turn)

    def _on_abandoned(self, event: Abandoned, turn: Turn) -> None:
        queued = self._books.waiting.get(event.ticket_id)
        if queued is not None:
            self._books.dequeue(queued)
        else:
            self._books.land(event.ticket_id, turn.now)

    def _reject_queued(self, queued: Queued, reason: Reason, turn: Turn) -> None:
        self._reject(queued.ticket, self._books.dequeue(queued), reason, turn)

    def _reject(self, ticket: Ticket, pool: Pool, reason: Reason, turn: Turn) -> None:
        for_now = reason in _FOR_NOW
        retry_after = self._drain_time(pool, turn.now) if for_now else _RETRY_AFTER_DOWN
        turn.commands.append(Reject(ticket.id, reason, retry_after, pool.name, turn.cause()))

    def _drain_time(self, pool: Pool, now: float) -> float:
        """Seconds until what is queued now will have been sent on, within 1 to 120.

        At the rate of the last seconds; before there is one, at what the backends could do.
        """
        rate = pool.served.rate(now)
        if not rate:
            rate = sum(1.0 / m.cost.per_token for m in self._books.fleet.pool(pool.name))
        if not rate:
            return _RETRY_AFTER_DOWN
        return min(max(pool.queue.held.tokens / rate, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX)

    # --- limits -----------------------------------------------------------------------------

    def _note_burst(self, tokens: int, pool: Pool, turn: Turn) -> None:
        spec = self._books.settings.burst
        per_backend = pool.bursty / max(1, pool.backends)
        why = pool.burst.triggers(spec, tokens, per_backend, turn.now)
        if why is not None:
            for each in self._books.pools if spec.whole_pool else (pool,):
                self._halve(each.name, each.limit, why, turn)

    def _halve(self, name: str, limit: AdaptiveLimit, why: str, turn: Turn) -> None:
        before = limit.effective
        if limit.halve(turn.now):
            self._books.limit_changed()
            turn.commands.append(Decided(name, why, before, limit.effective, turn.cause()))
        if self._books.recovering.put(name, limit):
            self._books.stirred = True

    def _on_load_seen(self, event: LoadSeen, turn: Turn) -> None:
        member = self._books.fleet.get(event.backend)
        if member is None:
            return
        known = member.load
        member.load = Load(event.kv_usage, event.preemptions, turn.now)
        self._books.wake_pools()
        if known is not None and event.preemptions > known.preemptions:
            self._halve(event.backend, member.limit, "the engine preempts", turn)

    # --- everything else --------------------------------------------------------------------

    def _on_backend_changed(self, event: BackendChanged, turn: Turn) -> None:
        self._books.put_backend(event.backend)
        if event.backend.state is BackendState.DOWN:
            self._books.prefixes.forget(event.backend.name)
        self._refuse_hopeless(turn)

    def _on_backend_removed(self, event: BackendRemoved, turn: Turn) -> None:
        books = self._books
        member = books.fleet.remove(event.name)
        if member is None:
            return
        if event.cancel:
            turn.commands += [Cancel(ticket_id, turn.cause()) for ticket_id in member.flights]
        books.recovering.forget(event.name)
        books.prefixes.forget(event.name)
        books.fit_limits()
        self._refuse_hopeless(turn)

    def _refuse_hopeless(self, turn: Turn) -> None:
        """Refuse queued tickets whose model nothing alive could serve any more."""
        books = self._books
        alive: dict[str, bool] = {}
        for queued in tuple(books.waiting.values()):
            model = queued.ticket.model
            if model not in alive:
                alive[model] = books.fleet.alive(model)
            if not alive[model]:
                self._reject_queued(queued, Reason.NO_BACKEND, turn)

    def _on_settings_changed(self, event: SettingsChanged, turn: Turn) -> None:
        self._books.resettle(event.settings)

    def _on_drain(self, event: Drain, turn: Turn) -> None:
        books = self._books
        books.draining = True
        for queued in tuple(books.waiting.values()):
            self._reject_queued(queued, Reason.DRAINING, turn)

    def _on_woke(self, event: Woke, turn: Turn) -> None:
        # A timer may fire a little early: whatever was announced has to be asked for again.
        self._announced, self._books.stirred = inf, True
