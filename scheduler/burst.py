"""A pool's effective concurrency limit: halved by a burst, recovering in steps.

Knows limits and times only; what counts as a trigger is decided by the caller.
"""

from scheduler.model import BurstSpec


class PoolLimit:
    """One pool's limit, kept as a share of the configured one, which may change at any time."""

    __slots__ = ("_configured", "_last_halved", "_next_step", "_share", "_spec")

    def __init__(self, spec: BurstSpec, configured: int) -> None:
        self._spec = spec
        self._configured = max(1, configured)
        self._share = 1.0
        self._last_halved: float | None = None
        self._next_step: float | None = None

    @property
    def configured(self) -> int:
        return self._configured

    @property
    def effective(self) -> int:
        """Requests that may be in flight in the pool now; at least 1."""
        # The epsilon undoes the rounding of (n / configured) * configured.
        return max(1, int(self._configured * self._share + 1e-9))

    @property
    def next_step(self) -> float | None:
        """When the limit next recovers by a step, or None while it is whole."""
        return self._next_step

    def configure(self, spec: BurstSpec, configured: int) -> None:
        self._spec = spec
        self._configured = max(1, configured)

    def halve(self, now: float) -> bool:
        """Halve the limit unless that happened within the window; say whether it changed."""
        self._next_step = now + self._spec.clean_interval if self._share < 1.0 else None
        if self._last_halved is not None and now < self._last_halved + self._spec.window:
            return False
        before = self.effective
        if before == 1:
            return False
        self._last_halved = now
        self._share = (before // 2) / self._configured
        self._next_step = now + self._spec.clean_interval
        return True

    def recover(self, now: float) -> bool:
        """Take the steps that are due; say whether the limit changed."""
        before = self.effective
        step = max(1, round(self._spec.recovery_step * self._configured))
        while self._next_step is not None and self._next_step <= now:
            self._share = min(1.0, (self.effective + step) / self._configured)
            whole = self._share >= 1.0
            self._next_step = None if whole else self._next_step + self._spec.clean_interval
        return self.effective != before
