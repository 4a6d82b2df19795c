"""Concurrency limits that are halved on a trigger and recover in steps, and two of the triggers.

Knows limits and times only; whose limit it is and what else is a trigger the caller decides.
"""

from collections import deque
from math import inf

from scheduler.model import AdaptSpec, BurstSpec

Recovery = BurstSpec | AdaptSpec


class AdaptiveLimit:
    """A limit, kept as a share of the configured one, which may change at any time."""

    __slots__ = (
        "_floor",
        "_last_halved",
        "_share",
        "_spec",
        "configured",
        "effective",
        "next_step",
    )

    def __init__(self, spec: Recovery, configured: int = 1) -> None:
        self._spec = spec
        self._share = 1.0
        self._last_halved: float | None = None
        self.next_step: float | None = None
        """When the limit next recovers by a step, or None while it is whole."""
        self.configured = max(1, configured)
        self.effective = self.configured
        """Requests that may be in flight now; at least the floor."""
        self._floor = 1

    def configure(self, spec: Recovery, configured: int, floor: int = 1) -> None:
        self._spec = spec
        self.configured = max(1, configured)
        self._floor = min(max(1, floor), self.configured)
        self._fit()

    def halve(self, now: float) -> bool:
        """Halve the limit unless that happened within the window; say whether it changed.

        A trigger within the window still puts the recovery off.
        """
        if self._share < 1.0:
            self.next_step = now + self._spec.clean_interval
        recent = self._last_halved is not None and now < self._last_halved + self._spec.window
        if recent or self.effective == self._floor:
            return False
        self._last_halved = now
        self._share = (self.effective // 2) / self.configured
        self.next_step = now + self._spec.clean_interval
        self._fit()
        return True

    def recover(self, now: float) -> bool:
        """Take the steps that are due; say whether the limit changed."""
        before = self.effective
        step = max(1, round(self._spec.recovery_step * self.configured))
        while self.next_step is not None and self.next_step <= now:
            self._share = min(1.0, (self.effective + step) / self.configured)
            whole = self._share >= 1.0
            self.next_step = None if whole else self.next_step + self._spec.clean_interval
            self._fit()
        return self.effective != before

    def _fit(self) -> None:
        # The epsilon undoes the rounding of (n / configured) * configured.
        self.effective = max(self._floor, int(self.configured * self._share + 1e-9))


class Recovering:
    """The limits that are not whole, by name, and when the first of them recovers by a step.

    After a wave the limits of a whole fleet recover at once: who only asks for the next time, as
    each decision may, does not walk through them.
    """

    __slots__ = ("_limits", "next_step")

    def __init__(self) -> None:
        self._limits: dict[str, tuple[AdaptiveLimit, float]] = {}
        self.next_step = inf
        """When the first step is due; infinite when all limits are whole."""

    def __contains__(self, name: str) -> bool:
        return name in self._limits

    def put(self, name: str, limit: AdaptiveLimit) -> bool:
        """Note that a limit was halved or put off; False, and nothing to note, if it is whole."""
        step = limit.next_step
        if step is None:
            return False
        known = self._limits.get(name)
        self._limits[name] = limit, step
        if known is not None and known[1] == self.next_step:
            self._find_next()
        else:
            self.next_step = min(self.next_step, step)
        return True

    def forget(self, name: str) -> None:
        if self._limits.pop(name, None) is not None:
            self._find_next()

    def recover(self, now: float) -> list[tuple[str, int, int]]:
        """Take all steps that are due: whose limit changed, from what, to what."""
        changed: list[tuple[str, int, int]] = []
        if now < self.next_step:
            return changed
        for name, (limit, _) in tuple(self._limits.items()):
            before = limit.effective
            if limit.recover(now):
                changed.append((name, before, limit.effective))
            if limit.next_step is None:
                del self._limits[name]
            else:
                self._limits[name] = limit, limit.next_step
        self._find_next()
        return changed

    def _find_next(self) -> None:
        self.next_step = min((step for _, step in self._limits.values()), default=inf)


class LateWindow:
    """The first tokens of the last window that came later than predicted."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def triggers(self, spec: AdaptSpec, now: float) -> bool:
        """Note a late first token; whether they are now enough to halve."""
        if spec.late is None:
            return False
        times = self._times
        while times and times[0] <= now - spec.window:
            times.popleft()
        times.append(now)
        if len(times) < spec.late:
            return False
        times.clear()
        return True


class BurstWindow:
    """The burst prompts of the last window: their count and tokens."""

    __slots__ = ("_arrivals", "_tokens")

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def triggers(self, spec: BurstSpec, tokens: int, per_backend: float, now: float) -> str | None:
        """Note a burst prompt; the reason to halve, if there is one.

        `per_backend` is how many burst prompts each backend of the pool is prefilling.
        """
        self._note(spec, tokens, now)
        if spec.in_flight is not None and per_backend >= spec.in_flight:
            return f"burst: a prompt of {tokens} tokens, {per_backend:g} in prefill per backend"
        if spec.prompts is not None and len(self._arrivals) >= spec.prompts:
            return f"burst: {len(self._arrivals)} long prompts in {spec.window:g} s"
        if spec.tokens is not None and self._tokens >= spec.tokens:
            return f"burst: {self._tokens} tokens of long prompts in {spec.window:g} s"
        return None

    def _note(self, spec: BurstSpec, tokens: int, now: float) -> None:
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= now - spec.window:
            self._tokens -= arrivals.popleft()[1]
        # Bounded by the triggers themselves: past both of them nothing more is learned.
        if len(arrivals) < 4096:
            arrivals.append((now, tokens))
            self._tokens += tokens
