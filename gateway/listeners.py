"""Who hears what becomes of a ticket, from its submission to its end."""

from collections.abc import Callable

from gateway.gate import Answer, Report
from gateway.tenancy.allowance import Refused
from scheduler.events import Abandoned, Failed, Finished, Reject

ENDS = (Finished, Failed, Abandoned)
"""The reports after which nobody hears of a ticket any more."""


class Listeners:
    """Each is called with the answers to its ticket: never again after a refusal, or after the
    ticket was reported ended."""

    def __init__(self) -> None:
        self._answers: dict[str, Callable[[Answer], None]] = {}

    def add(self, ticket_id: str, answer: Callable[[Answer], None]) -> None:
        self._answers[ticket_id] = answer

    def reported(self, event: Report) -> None:
        if isinstance(event, ENDS):
            self._answers.pop(event.ticket_id, None)

    def tell(self, answer: Answer) -> None:
        """Pass an answer on. A ticket that was abandoned meanwhile has nobody who listens."""
        ended = isinstance(answer, Reject | Refused)
        listener = (self._answers.pop if ended else self._answers.get)(answer.ticket_id, None)
        if listener is not None:
            listener(answer)
