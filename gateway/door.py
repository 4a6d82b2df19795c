"""Where tickets meet what operators want before they meet the scheduler, and again when they end.

A `gate.Admitter` around the driver: limits may refuse a ticket, a canary keeps it away from one
group of backends, and both hear how it ended. Everything is decided at once.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from gateway.canary.canaries import Canaries
from gateway.canary.trial import Trial
from gateway.driver import Driver
from gateway.gate import Answer, Report
from gateway.tenancy.allowance import Mirror
from gateway.tenancy.limits import Limits
from gateway.tuning.ear import Ear
from scheduler.events import Abandoned, Dispatch, Failed, Finished, FirstToken, Progress, Reject
from scheduler.model import Ticket


class Door:
    """`open`: no limit and no canary is configured, and every ticket goes straight on. `ear` hears
    of all of them."""

    def __init__(self, driver: Driver, limits: Limits, canaries: Canaries) -> None:
        self._driver = driver
        self._limits = limits
        self._canaries = canaries
        self._visits: dict[str, _Visit] = {}
        self.ear = Ear()
        self.open = True

    def submit(self, ticket: Ticket, answer: Callable[[Answer], None]) -> None:
        answer = self.ear.submitted(ticket, answer)
        if self.open:
            self._driver.submit(ticket, answer)
            return
        now = monotonic()
        refused = self._limits.take(ticket, now)
        if refused is not None:
            answer(refused)
            return
        allowance = self._limits.allowance(ticket, now)
        if allowance is not None:
            answer(allowance)
        visit = _Visit(self._limits, self._canaries.trials.get(ticket.model), ticket.id)
        self._visits[ticket.id] = visit

        def answered(said: Answer) -> None:
            if isinstance(said, Dispatch):
                visit.dispatched(said)
                if avoid := visit.mirrored(ticket, said.backend):
                    answer(Mirror(ticket.id, avoid))
            elif isinstance(said, Reject):
                self._visits.pop(ticket.id, None)
                visit.end(said)
            answer(said)

        steered = self._canaries.steer(ticket)
        priority = self._limits.priority(ticket)
        self._driver.submit(replace(steered, priority=priority), answered)

    def report(self, event: Report) -> None:
        self.ear.reported(event)
        visit = self._visits.get(event.ticket_id) if self._visits else None
        if visit is not None and visit.heard(event):
            del self._visits[event.ticket_id]
        self._driver.report(event)


class _Visit:
    """One ticket between the door and its end."""

    __slots__ = ("_dispatched", "_limits", "_ticket_id", "_trial")

    def __init__(self, limits: Limits, trial: Trial | None, ticket_id: str) -> None:
        self._limits = limits
        self._trial = trial
        self._ticket_id = ticket_id
        self._dispatched = False

    def dispatched(self, dispatch: Dispatch) -> None:
        self._dispatched = True
        if self._trial is not None:
            now = monotonic()
            self._trial.dispatched(self._ticket_id, dispatch.backend, dispatch.service_class, now)

    def mirrored(self, ticket: Ticket, backend: str) -> frozenset[str]:
        return frozenset() if self._trial is None else self._trial.mirrored(ticket, backend)

    def heard(self, event: Report) -> bool:
        """What a request says of itself; True when it is over."""
        match event:
            case FirstToken():
                if self._trial is not None:
                    self._trial.first_token(self._ticket_id, monotonic())
            case Progress():
                self._limits.settle(self._ticket_id, event.tokens, monotonic())
            case _:
                self.end(event)
                return True
        return False

    def end(self, event: Finished | Failed | Abandoned | Reject) -> None:
        """What a client left behind was computed all the same: it is not given back."""
        served = self._dispatched and not isinstance(event, Failed | Reject)
        self._limits.ended(self._ticket_id, monotonic(), served=served)
        if self._trial is None:
            return
        match event:
            case Finished():
                self._trial.finished(self._ticket_id)
            case Failed(busy=False):
                self._trial.failed(self._ticket_id)
            case _:
                self._trial.abandoned(self._ticket_id)
