"""Tests as dialogues with the scheduler: at this time, this event, these commands.

`Playbook` drives a real scheduler, checks its books after each event, and leaves `WakeAt` out
of the replies, because most dialogues are not about it (`play.s.next_wakeup()` shows it).
"""

from scheduler.core import Scheduler
from scheduler.events import Arrived, BackendChanged, Command, Event, WakeAt
from scheduler.model import Backend, BackendState, ClassSpec, Settings, Ticket

SHORT = ClassSpec("short", max_prompt_tokens=1000)
LONG = ClassSpec("long")
TWO_CLASSES = Settings(classes=(SHORT, LONG))
ONE_CLASS = Settings(classes=(ClassSpec("all"),))
MODEL = "m"


def backend(name: str = "b", state: BackendState = BackendState.READY, **fields: object) -> Backend:
    fields.setdefault("models", frozenset({MODEL}))
    return Backend(name, state, **fields)  # type: ignore[arg-type]


def ticket(name: str = "t", tokens: int = 100, **fields: object) -> Ticket:
    fields.setdefault("model", MODEL)
    return Ticket(name, prompt_tokens=tokens, **fields)  # type: ignore[arg-type]


class Playbook:
    """One scheduler and the commands it gives. Calling it sends one event."""

    def __init__(self, settings: Settings = TWO_CLASSES, *backends: Backend) -> None:
        self.s = Scheduler(settings)
        for each in backends:
            self(0.0, BackendChanged(each))

    def __call__(self, now: float, event: Event) -> list[Command]:
        commands = self.s.handle(event, now)
        self.s.check()
        return [c for c in commands if not isinstance(c, WakeAt)]

    def arrive(self, now: float, name: str, tokens: int = 100, **fields: object) -> str | None:
        """The backend that an arriving ticket is sent to at once; None if it has to wait."""
        for command in self(now, Arrived(ticket(name, tokens, **fields))):
            if getattr(command, "ticket_id", None) == name:
                return getattr(command, "backend", f"rejected: {getattr(command, 'reason', '')}")
        return None
