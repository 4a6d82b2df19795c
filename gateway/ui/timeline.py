"""The last fifteen minutes, a reading a second, as columns for the page's charts."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = 900
"""Seconds of history that a newly opened page begins with."""

NOTHING = (0, 0, 0, 0, None)
COLUMNS = ("queued", "in_flight", "effective", "configured", "p95")


@dataclass(frozen=True, slots=True)
class Second:
    """One reading: Unix time, and the columns' values by class."""

    time: float
    classes: Mapping[str, tuple[int, int, int, int, float | None]]


class Timeline:
    """The newest KEPT seconds."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=KEPT)

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, second: Second) -> None:
        self._seconds.append(second)

    def document(self) -> dict[str, Any]:
        """Column by column; a class that came later begins with nothing."""
        names = dict.fromkeys(name for second in self._seconds for name in second.classes)
        columns = {
            name: dict(zip(COLUMNS, zip(*self._of(name), strict=True), strict=True))
            for name in names
        }
        return {"times": [round(s.time, 1) for s in self._seconds], "classes": columns}

    def _of(self, name: str) -> list[tuple[int, int, int, int, float | None]]:
        return [second.classes.get(name, NOTHING) for second in self._seconds]
