"""The metrics of each class as plain counts, and what a minute of them says.

Everything here is a difference of two readings of the same counters, so it is true for one process
and for a node's relay processes together.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

Rows = Callable[[str], Iterable[tuple[tuple[str, ...], Sequence[float]]]]
"""Reads a metric by name: its rows, label values first."""

FAILED = frozenset({"shed", "expired", "unavailable", "backend_failed", "internal"})


@dataclass(slots=True)
class Counts:
    """One class since the start, or over a window. `buckets` count TTFTs, the last one those above
    every bound; `stages` have how many went through and their seconds together."""

    requests: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0
    buckets: list[float] = field(default_factory=list)
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)


def read(rows: Rows) -> dict[str, Counts]:
    """The counts by class."""
    found: dict[str, Counts] = {}

    def of(name: str) -> Counts:
        return found.setdefault(name, Counts())

    for (_, name, _, outcome, _), (number,) in rows("forebay_requests_total"):
        of(name).requests += number
        of(name).failed += number * (outcome in FAILED)
    for (_, name), row in rows("forebay_ttft_seconds"):
        counts = of(name)
        counts.seconds += row[-1]
        counts.buckets = _sum(counts.buckets, row[:-1])
    for (name, stage), row in rows("forebay_ttft_stage_seconds"):
        of(name).stages[stage] = (sum(row[:-1]), row[-1])
    return found


def since(now: Counts, before: Counts) -> Counts:
    """What was counted between two readings."""
    return Counts(
        requests=now.requests - before.requests,
        failed=now.failed - before.failed,
        seconds=now.seconds - before.seconds,
        buckets=_sum(now.buckets, [-number for number in before.buckets]),
        stages={
            name: (count - then[0], seconds - then[1])
            for name, (count, seconds) in now.stages.items()
            for then in (before.stages.get(name, (0.0, 0.0)),)
        },
    )


def quantile(counts: Counts, share: float, bounds: Sequence[float]) -> float | None:
    """The TTFT that this share of the streams did not exceed, in seconds; linear within a bucket,
    as Prometheus's histogram_quantile is. None without streams."""
    total = sum(counts.buckets)
    if total <= 0:
        return None
    wanted = share * total
    reached = list(accumulate(counts.buckets))
    place = bisect_left(reached, wanted)
    if place >= len(bounds):
        return bounds[-1]
    low = bounds[place - 1] if place else 0.0
    missing = (reached[place] - wanted) / counts.buckets[place]
    return low + (bounds[place] - low) * (1 - missing)


def document(counts: Counts, seconds: float, bounds: Sequence[float]) -> Mapping[str, Any]:
    """A window of so many seconds as the page shows it; times in seconds."""
    streams = sum(counts.buckets)
    return {
        "rate": counts.requests / seconds if seconds else 0.0,
        "failed": counts.failed,
        "streams": streams,
        "mean": counts.seconds / streams if streams else None,
        "p50": quantile(counts, 0.5, bounds),
        "p95": quantile(counts, 0.95, bounds),
        "stages": [
            {"name": name, "seconds": spent / count}
            for name, (count, spent) in counts.stages.items()
            if count > 0
        ],
    }


def _sum(one: Sequence[float], other: Sequence[float]) -> list[float]:
    if not one or not other:
        return list(one or other)
    return [a + b for a, b in zip(one, other, strict=True)]
