"""One call of `Scheduler.handle`."""

from dataclasses import dataclass, field

from scheduler.events import Command


@dataclass(slots=True)
class Turn:
    """Its time, the event that caused it, the ticket that arrived, and the commands so far."""

    now: float
    cause: str
    newcomer: str | None = None
    commands: list[Command] = field(default_factory=list)

    def tell(self, command: Command) -> None:
        self.commands.append(command)
