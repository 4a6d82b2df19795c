"""An entry for the decision log about something that changed by itself."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Told:
    """`kind` counts in the metrics; the rest is for a person: what is it about, what, and why."""

    kind: str
    subject: str
    what: str
    why: str


Tell = Callable[[Told], None]
