"""What the scheduler learns while it runs: how fast a backend prefills, how fast work arrives.

All estimates forget: a sample's weight falls by 1/e each `_MEMORY` seconds, measured by the
times that the caller passes in.
"""

from math import exp

_MEMORY = 60.0
# First tokens that come within this time came out of one engine step: one sample.
_SAME_STEP = 0.002
# Amounts that come within this time are of one age.
_GRAIN = 0.01
# How much faster than its seed an engine is believed to be; a cached prompt can look infinite.
_MAX_SPEEDUP = 100.0
# How many samples of a prompt this long the seed is worth.
_SEED_SAMPLES = 2.0
_SEED_TOKENS = 512.0


class PrefillCost:
    """The time of a prefill as `base + per_token * tokens`, in seconds.

    Least squares over (tokens, seconds) samples, with the slope drawn to its seed by a ridge
    term, so that traffic of one prompt length (no spread, no slope) leaves the seed in force
    and fits the base alone.
    """

    __slots__ = ("_at", "_pending", "_seed", "_sums", "base", "per_token")

    def __init__(self, rate: float) -> None:
        self._seed = 1.0 / rate
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._pending: tuple[float, float] | None = None
        self._at = 0.0
        self.base = 0.0
        self.per_token = self._seed

    def seconds(self, tokens: int) -> float:
        return self.base + tokens * self.per_token

    def add(self, tokens: int, seconds: float, now: float) -> None:
        """A prompt's first token came `seconds` after the backend could begin with it."""
        if self._pending is not None and now - self._at < _SAME_STEP:
            self._pending = (self._pending[0] + tokens, self._pending[1] + seconds)
            return
        if self._pending is not None:
            self._learn(*self._pending, keep=exp((self._at - now) / _MEMORY))
        self._pending = (tokens, seconds)
        self._at = now

    def _learn(self, tokens: float, seconds: float, keep: float) -> None:
        n, x, y, xx, xy = self._sums
        n, x, y = n + 1.0, x + tokens, y + seconds
        xx, xy = xx + tokens * tokens, xy + tokens * seconds
        ridge = _SEED_SAMPLES * _SEED_TOKENS * _SEED_TOKENS
        slope = (xy - x * y / n + ridge * self._seed) / (xx - x * x / n + ridge)
        base = (y - slope * x) / n
        if base < 0.0 or slope <= 0.0:
            base, slope = 0.0, y / x
        self.base, self.per_token = base, max(slope, self._seed / _MAX_SPEEDUP)
        self._sums = (n * keep, x * keep, y * keep, xx * keep, xy * keep)


class DecodePace:
    """Seconds per output token (ITL), by tokens: decayed time over decayed tokens."""

    __slots__ = ("_at", "_seconds", "_tokens")

    def __init__(self) -> None:
        self._seconds = self._tokens = self._at = 0.0

    def add(self, tokens: int, seconds: float, now: float) -> None:
        keep = exp((self._at - now) / _MEMORY)
        self._at = now
        self._seconds = self._seconds * keep + seconds
        self._tokens = self._tokens * keep + tokens

    @property
    def itl(self) -> float:
        """0.0 until something was decoded."""
        return self._seconds / self._tokens if self._tokens else 0.0


class Meter:
    """A rate per second: decayed amount over decayed time, both from the first sample on."""

    __slots__ = ("_amount", "_at", "_memory", "_time")

    def __init__(self, memory: float = _MEMORY) -> None:
        self._memory = memory
        self._amount = 0.0
        self._time = 0.0
        self._at: float | None = None

    def add(self, amount: float, now: float) -> None:
        if self._at is None or now - self._at > _GRAIN:
            self._age(now)
        self._amount += amount

    @property
    def seen(self) -> float:
        """For how long it has been counting, in seconds, at most its memory."""
        return self._time

    def rate(self, now: float) -> float:
        """Units per second; 0.0 until a second has been seen."""
        self._age(now)
        return self._amount / self._time if self._time >= 1.0 else 0.0

    def _age(self, now: float) -> None:
        if self._at is None:
            self._at = now
        elapsed = now - self._at
        if elapsed > 0.0:
            keep = exp(-elapsed / self._memory)
            self._amount *= keep
            self._time = self._time * keep + self._memory * (1.0 - keep)
            self._at = now
