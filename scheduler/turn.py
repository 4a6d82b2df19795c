"""One call of `Scheduler.handle`."""

from scheduler.events import CAUSES, Command, Event
from scheduler.queues import Queued


class Turn:
    """Its event and time, the ticket that it queued, and the commands so far."""

    __slots__ = ("_event", "commands", "newcomer", "now")

    def __init__(self, event: Event, now: float) -> None:
        self._event = event
        self.now = now
        self.newcomer: Queued | None = None
        self.commands: list[Command] = []

    def cause(self) -> str:
        """The event's id; made only for a turn that commands something."""
        return CAUSES[type(self._event)](self._event)
