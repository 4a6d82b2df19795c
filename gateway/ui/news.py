"""What happened lately, for the decision log: limits, backends, settings, each with its cause."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from backends.types import BackendStatus
from gateway.tuning.told import Told
from scheduler.events import Decided

KEPT = 200


class Kind(Enum):
    """What an item is about."""

    BURST = "burst"
    LIMIT = "limit"
    BACKEND = "backend"
    SETTINGS = "settings"
    CHANNEL = "channel"
    TUNING = "tuning"


@dataclass(frozen=True, slots=True)
class Item:
    """`time` is Unix time, `subject` a pool, a backend or a model; `cause` is for a person."""

    time: float
    kind: Kind
    subject: str
    text: str
    cause: str = ""


class News:
    """The newest KEPT items. `heard`, once set, is called with each new one."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque(maxlen=KEPT)
        self._backends: dict[str, str] = {}
        self.heard: Callable[[Item], None] | None = None

    def items(self) -> list[Item]:
        """Oldest first."""
        return list(self._items)

    def decided(self, decision: Decided) -> None:
        """A pool's effective limit changed."""
        kind = Kind.BURST if decision.what.startswith("burst") else Kind.LIMIT
        text = f"limit {decision.before} → {decision.after}: {decision.what}"
        self._add(kind, decision.pool, text, decision.cause)

    def backend(self, status: BackendStatus) -> None:
        """Something about a backend changed; its state or the reason for it is news."""
        name, text = status.spec.name, f"{status.state.value}: {status.reason}"
        if self._backends.get(name) != text:
            self._backends[name] = text
            self._add(Kind.BACKEND, name, text)

    def distrusted(self, backend: str, model: str, reason: str) -> None:
        """A backend's prompts go as text from now on."""
        self._add(Kind.CHANNEL, backend, f"{model} goes as text", reason)

    def tuned(self, told: Told) -> None:
        """Something changed by itself."""
        self._add(Kind.TUNING, told.subject, told.what, told.why)

    def accepted(self) -> None:
        self._add(Kind.SETTINGS, "settings", "changed keys are in force")

    def rejected(self, reasons: dict[str, str]) -> None:
        for key, reason in reasons.items():
            self._add(Kind.SETTINGS, key, "refused; the last good settings stay in force", reason)

    def _add(self, kind: Kind, subject: str, text: str, cause: str = "") -> None:
        item = Item(time.time(), kind, subject, text, cause)
        self._items.append(item)
        if self.heard is not None:
            self.heard(item)
