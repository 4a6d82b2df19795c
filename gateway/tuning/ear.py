"""What the rules go by, heard where tickets enter: prompt lengths, and how long first tokens took.

Lengths are counted of every ticket while somebody asks; first tokens are timed for a sample, so
that listening costs a request next to nothing. Nothing is decided here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from gateway.gate import Answer, Report
from gateway.tenancy.allowance import Refused
from gateway.tuning.memory import Heard
from scheduler.events import Dispatch, Failed, FirstToken, Progress, Reject
from scheduler.model import Ticket

SPACING = 0.02
"""Seconds between two tickets that are timed: fifty a second say enough."""
MOST = 1000
"""Tickets that are timed at once."""


@dataclass(slots=True)
class _Timed:
    """A ticket between the door and its end."""

    began: float
    backend: str = ""
    service_class: str = ""
    ttft: float | None = None


class Ear:
    """`lengths`, once set, hears of every ticket; `heard` of each timed one when it ends."""

    def __init__(self) -> None:
        self.lengths: Callable[[int, float], None] | None = None
        self.heard: list[Callable[[Heard], None]] = []
        self._timed: dict[str, _Timed] = {}
        self._next = 0.0

    def submitted(self, ticket: Ticket, answer: Callable[[Answer], None]) -> Callable[..., None]:
        """A ticket comes; returns who is to hear the answers to it."""
        now = monotonic()
        if self.lengths is not None:
            self.lengths(ticket.prompt_tokens, now)
        if now < self._next or len(self._timed) >= MOST:
            return answer
        self._next = now + SPACING
        timed = self._timed[ticket.id] = _Timed(now)

        def answered(said: Answer) -> None:
            if isinstance(said, Dispatch):
                timed.backend, timed.service_class = said.backend, said.service_class
            elif isinstance(said, Reject | Refused):
                self._timed.pop(ticket.id, None)
            answer(said)

        return answered

    def reported(self, event: Report) -> None:
        """What a request says of itself. An error's first byte is no first token."""
        timed = self._timed.get(event.ticket_id) if self._timed else None
        if timed is None or isinstance(event, Progress):
            return
        if isinstance(event, FirstToken):
            timed.ttft = monotonic() - timed.began
            return
        del self._timed[event.ticket_id]
        failed = isinstance(event, Failed)
        if isinstance(event, Failed) and event.busy:
            return
        if failed or timed.ttft is not None:
            heard = Heard(timed.backend, timed.service_class, None if failed else timed.ttft)
            for listener in self.heard:
                listener(heard)
