"""What the scheduler learns while it runs: how fast a backend prefills, how fast work arrives.

All estimates forget: a sample's weight falls by 1/e each `_MEMORY` seconds, measured by the
times that the caller passes in.
"""

from math import exp

_MEMORY = 60.0
# First tokens that come within this time came out of one engine step: one sample.
_SAME_STEP = 0.002
# And those of cached prompts within this share of the first one's time: the engine's front hands
# them out one by one, each with some work.
_SAME_SHARE = 0.5
# Amounts that come within this time are of one age.
_GRAIN = 0.01
# How much faster than its seed an engine is believed to be; a cached prompt can look infinite.
_MAX_SPEEDUP = 100.0
# How many samples of a prompt this long the seed is worth.
_SEED_SAMPLES = 2.0
_SEED_TOKENS = 512.0
_SEED_CACHED = 2048.0


class PrefillCost:
    """The time of a prefill as `base + per_token * tokens + per_cached * cached`, in seconds.

    `tokens` are computed; `cached` ones the engine has, but has to take in, look up and attend to.
    Least squares over samples of (tokens, cached, seconds), with the first slope drawn to its seed
    by a ridge term and the other to 0, so that traffic of one prompt length (no spread, no slope)
    leaves them there and fits the base alone.
    """

    __slots__ = (
        "_at",
        "_cached_sums",
        "_first",
        "_pending",
        "_seed",
        "_sums",
        "base",
        "per_cached",
        "per_token",
    )

    def __init__(self, rate: float) -> None:
        self._seed = 1.0 / rate
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._cached_sums = (0.0, 0.0, 0.0, 0.0)
        self._pending: tuple[float, float, float] | None = None
        self._at = 0.0
        self._first = 0.0
        self.base = 0.0
        self.per_token = self._seed
        self.per_cached = 0.0

    def seconds(self, tokens: float, cached: float = 0) -> float:
        return self.base + tokens * self.per_token + cached * self.per_cached

    def share(self, tokens: int, cached: int) -> float:
        """The same of a prompt that the engine reads beside others."""
        return tokens * self.per_token + cached * self.per_cached

    def add(self, tokens: int, seconds: float, now: float, cached: int = 0) -> None:
        """A prompt's first token came `seconds` after the backend could begin with it."""
        step = max(_SAME_STEP, _SAME_SHARE * self._first) if cached else _SAME_STEP
        if self._pending is not None:
            x, z, y = self._pending
            if now - self._at < step:
                self._pending = (x + tokens, z + cached, y + seconds)
                return
            self._learn(x, z, y, exp((self._at - now) / _MEMORY))
        self._pending = (tokens, cached, seconds)
        self._at, self._first = now, seconds

    def _learn(self, tokens: float, cached: float, seconds: float, keep: float) -> None:
        n, x, y, xx, xy = self._sums
        n, x, y = n + 1.0, x + tokens, y + seconds
        xx, xy = xx + tokens * tokens, xy + tokens * seconds
        self._sums = (n * keep, x * keep, y * keep, xx * keep, xy * keep)
        ridge = _SEED_SAMPLES * _SEED_TOKENS * _SEED_TOKENS
        spread, along = xx - x * x / n + ridge, xy - x * y / n + ridge * self._seed
        slope, slope_cached, z = along / spread, 0.0, self._cached_sums[0] + cached
        if z:
            _, zz, xz, zy = self._cached_sums
            zz, xz, zy = zz + cached * cached, xz + tokens * cached, zy + cached * seconds
            self._cached_sums = (z * keep, zz * keep, xz * keep, zy * keep)
            both, along_cached = xz - x * z / n, zy - z * y / n
            spread_cached = zz - z * z / n + _SEED_SAMPLES * _SEED_CACHED * _SEED_CACHED
            normal = (spread, along, both, spread_cached, along_cached)
            slope, slope_cached = _two_slopes(normal, self._seed / _MAX_SPEEDUP)
        self._accept(slope, slope_cached, (n, x, z, y))

    def _accept(
        self, slope: float, slope_cached: float, sums: tuple[float, float, float, float]
    ) -> None:
        """Take the slopes over, and the base that goes with them."""
        n, x, z, y = sums
        base = (y - slope * x - slope_cached * z) / n
        if base < 0.0 or slope <= 0.0:
            # All of the time is the tokens'; a cached one's share of it stays what it is.
            part = slope_cached / slope if slope > 0.0 else 0.0
            base, slope = 0.0, y / (x + part * z)
            slope_cached = part * slope
        self.base, self.per_cached = base, slope_cached
        self.per_token = max(slope, self._seed / _MAX_SPEEDUP)


def _two_slopes(
    normal: tuple[float, float, float, float, float], least: float
) -> tuple[float, float]:
    """The price of a computed token, `least` or more, and of a cached one: between 0 and that.

    `normal` are the two equations of the least squares; where their solution is not such a pair,
    what is nearest to the samples with one price for both, or none for the cached.
    """
    spread, along, both, spread_cached, along_cached = normal
    slope = along / spread
    # What the computed tokens leave unexplained, by what of the cached does not come with them.
    rest = along_cached - both * slope
    slope_cached = max(rest / (spread_cached - both * both / spread), 0.0)
    slope -= slope_cached * both / spread
    if slope_cached > slope:
        slope_cached = (along + along_cached) / (spread + 2.0 * both + spread_cached)
        slope = slope_cached = max(slope_cached, least)
    return slope, slope_cached


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
