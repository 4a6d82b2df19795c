"""What is measured of a candidate, what makes one better, and what rules one out. Pure.

A candidate is measured in windows: runs of so many requests each, the same ones for every
candidate. Figures are of all its windows together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import fmean, stdev

from bench.figures import percentile

KV_LIMIT = 0.95
"""The source: at least 5% of the KV cache stay free, for sudden long text."""
PREEMPTED_LIMIT = 0.002
"""Preemptions for each request, at most: none, but for one in 500."""
FLOOR = 0.95
"""Of the throughput of the engine as it starts without our flags: no less may come of a change."""
_NOTHING = 1e9
"""The score of a candidate that answered nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """One run. `ttfts` are seconds, of the class's answered requests; `good` counts those of them
    within the objective for single requests; `seconds` is the run's length; `kv_usage` the highest
    share of the KV cache that was seen. A window of an engine that did not start has no requests
    and says why."""

    requests: int
    failed: int
    ttfts: tuple[float, ...]
    good: int
    seconds: float
    kv_usage: float = 0.0
    preemptions: int = 0
    refused: str = ""

    @property
    def p99(self) -> float:
        return percentile(self.ttfts, 0.99)


@dataclass(frozen=True, slots=True)
class Figures:
    """All windows of a candidate as one: TTFT in seconds, rates per second."""

    requests: int
    failed: int
    ttft_p50: float
    ttft_p99: float
    throughput: float
    goodput: float
    kv_usage: float
    preemptions: int


def figures(windows: Sequence[Window]) -> Figures:
    ttfts = [ttft for window in windows for ttft in window.ttfts]
    requests, failed = (
        sum(window.requests for window in windows),
        sum(window.failed for window in windows),
    )
    seconds = sum(window.seconds for window in windows) or 1.0
    return Figures(
        requests=requests,
        failed=failed,
        ttft_p50=percentile(ttfts, 0.5),
        ttft_p99=percentile(ttfts, 0.99),
        throughput=(requests - failed) / seconds,
        goodput=sum(window.good for window in windows) / seconds,
        kv_usage=max((window.kv_usage for window in windows), default=0.0),
        preemptions=sum(window.preemptions for window in windows),
    )


class Aim(StrEnum):
    """What is made best."""

    TTFT = "ttft"
    GOODPUT = "goodput"


@dataclass(frozen=True, slots=True)
class Objective:
    """`floor` is the least throughput in answered requests a second, over all classes."""

    aim: Aim = Aim.TTFT
    floor: float = 0.0

    def score(self, windows: Sequence[Window]) -> float:
        """Less is better: the TTFT's p99 in milliseconds, or the goodput below zero."""
        found = figures(windows)
        if self.aim is Aim.GOODPUT:
            return -found.goodput
        return found.ttft_p99 * 1e3 if found.ttft_p99 else _NOTHING

    def violations(self, windows: Sequence[Window]) -> dict[str, float]:
        """By how much each constraint is violated, as a share of what it allows; kept ones are
        absent. Empty: the candidate may be chosen."""
        found = figures(windows)
        excess = {
            "kv_usage": found.kv_usage / KV_LIMIT - 1.0,
            "preemptions": found.preemptions / (PREEMPTED_LIMIT * max(1, found.requests)) - 1.0,
            "throughput": 1.0 - found.throughput / self.floor if self.floor else 0.0,
            "failures": found.failed / max(1, found.requests),
            "start": float(any(window.refused for window in windows)),
        }
        return {name: round(value, 6) for name, value in excess.items() if value > 0}

    def worse_by(self, score: float, best: float) -> float:
        """How far a score is from the best one, as a share of the best."""
        return (score - best) / abs(best) if best else 0.0


def noise(windows: Sequence[Window]) -> float:
    """The standard error of the windows' mean p99, as a share of it: 0 for a single window."""
    values = [window.p99 for window in windows if window.ttfts]
    if len(values) < 2:
        return 0.0
    mean, error = fmean(values), stdev(values) / sqrt(len(values))
    return error / mean if mean else 0.0
