"""When failures among a backend's recent outcomes are too many to go on sending to it.

Only the counting lives here, with time as an argument. The rest of a circuit breaker is the
backend's life (`lifecycle`): open is DOWN with its backoff, half-open is PROBING and WARMING, where
the trial requests are our own and not a user's, and closing again is READY with a slow start.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Opens at `failures` or more within about `window` seconds, if they are at least the share
    `ratio` of all outcomes in it."""

    window: float = 10.0
    failures: int = 5
    ratio: float = 0.5


class Breaker:
    """Counts outcomes over the present and the previous half window: constant memory and time."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._half = -1
        self._now = self._before = (0, 0)

    def succeeded(self, now: float, times: int = 1) -> None:
        """The backend answered, so many times."""
        self._turn(now)
        good, bad = self._now
        self._now = (good + times, bad)

    def failed(self, now: float) -> bool:
        """The backend failed; True when it is too much."""
        self._turn(now)
        good, bad = self._now
        self._now = (good, bad + 1)
        bad = self._now[1] + self._before[1]
        total = bad + self._now[0] + self._before[0]
        return bad >= self._settings.failures and bad >= self._settings.ratio * total

    def reset(self) -> None:
        """Forget: the backend was proved again."""
        self._now = self._before = (0, 0)

    def _turn(self, now: float) -> None:
        half = int(now // (self._settings.window / 2))
        if half != self._half:
            self._before = self._now if half == self._half + 1 else (0, 0)
            self._now = (0, 0)
            self._half = half
