"""What was spent in the last minute, by half seconds. Pure; time is an argument.

A unit that was spent comes back a minute later, not before: in no sixty seconds is more spent than
the limit, wherever they begin.
"""

from collections import deque
from math import floor

SPAN = 60.0
SLOT = 0.5


class Window:
    """Amounts by the half second in which they were spent; what is given back is negative."""

    __slots__ = ("_slots", "total")

    def __init__(self) -> None:
        self._slots: deque[list[int]] = deque()
        self.total = 0

    def add(self, amount: int, now: float) -> None:
        slot = floor(now / SLOT)
        self.advance(now)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1][1] += amount
        else:
            self._slots.append([slot, amount])
        self.total += amount

    def advance(self, now: float) -> None:
        """Forget what has come back by now."""
        first = floor(now / SLOT) - 1 - SPAN / SLOT
        while self._slots and self._slots[0][0] <= first:
            self.total -= self._slots.popleft()[1]

    def returns(self, now: float) -> list[tuple[float, int]]:
        """When what comes back: seconds from now and amount, the soonest first."""
        return [((slot + 1) * SLOT + SPAN - now, amount) for slot, amount in self._slots]


def until(missing: int, returns: list[tuple[float, int]]) -> float:
    """Seconds until so much has come back; a whole span when nobody knows."""
    for seconds, amount in returns:
        missing -= amount
        if missing <= 0:
            return max(seconds, 0.0)
    return SPAN
