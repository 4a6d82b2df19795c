"""Percentiles and goodput of simulated outcomes."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from bench.simulation import Outcome


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0.0 for none."""
    ordered = sorted(values)
    return ordered[needed(len(ordered), share) - 1] if ordered else 0.0


def needed(count: int, share: float) -> int:
    """How many of `count`, one or more, are at least that share; a product such as 0.07 x 100 is
    a little more than it should be."""
    return max(1, ceil(share * count - 1e-9))


def ttfts(outcomes: Iterable[Outcome]) -> list[float]:
    """Seconds to the first token of all that got one."""
    return [ttft for outcome in outcomes if (ttft := outcome.ttft) is not None]


def in_milliseconds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`p50`, `p95`, `p99` and `mean` of the time to first token."""
    found = ttfts(outcomes)
    numbers = {f"p{int(p * 100)}": percentile(found, p) * 1e3 for p in (0.5, 0.95, 0.99)}
    numbers["mean"] = sum(found) / max(1, len(found)) * 1e3
    return {name: round(value, 2) for name, value in numbers.items()}


def goodput(outcomes: Sequence[Outcome], targets: Mapping[bool, float], bound: int) -> float:
    """The share of requests whose first token came in time.

    `targets` are seconds for prompts up to `bound` tokens (True) and for longer ones (False).
    """
    good = sum(
        outcome.ttft is not None and outcome.ttft <= targets[outcome.job.prompt <= bound]
        for outcome in outcomes
    )
    return good / max(1, len(outcomes))
