"""From samples to numbers: percentiles by class, goodput, errors, and the generator's own share."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from bench.load.run import Effort
from bench.load.sample import Sample

PERCENTILES = (50, 90, 95, 99)
LATE = 0.002
"""A p99 lateness over this, in seconds, makes the generator part of what was measured."""

BUSY = 0.9
"""A generator that needs more of a core than this cannot keep its times."""

WAITING = 0.2
"""One that waits for a core longer than this share of the time stamps answers late, too."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good answer is, in seconds: goodput counts these. None: not looked at."""

    ttft: float | None = 0.6
    tpot: float | None = None

    def met(self, sample: Sample) -> bool:
        if sample.error:
            return False
        return _within(sample.ttft, self.ttft) and _within(sample.tpot, self.tpot)


def _within(value: float | None, limit: float | None) -> bool:
    return limit is None or value is None or value <= limit


def distribution(values: Iterable[float]) -> dict[str, float]:
    """Seconds to milliseconds: mean, percentiles, maximum. Empty for no values."""
    array = numpy.fromiter(values, dtype=float) * 1000
    if not array.size:
        return {}
    found = {"mean": float(array.mean())}
    found |= {f"p{p}": float(numpy.percentile(array, p)) for p in PERCENTILES}
    found["max"] = float(array.max())
    return {name: round(value, 3) for name, value in found.items()}


def of_class(samples: Sequence[Sample], objective: Objective) -> dict[str, Any]:
    """The numbers of one class, or of all. Latencies in milliseconds, rates per second."""
    good = [sample for sample in samples if not sample.error]
    span = max(s.ended for s in samples) - min(s.intended for s in samples) if samples else 0.0
    per_second = 1 / span if span else 0.0
    return {
        "requests": len(samples),
        "completed": len(good),
        "errors": dict(Counter(s.error for s in samples if s.error)),
        "retry_after_s": _retry_after(samples),
        "requests_per_s": round(len(good) * per_second, 3),
        "goodput_per_s": round(sum(map(objective.met, samples)) * per_second, 3),
        "prompt_tokens": sum(s.prompt_tokens for s in good),
        "output_tokens": sum(s.output_tokens for s in good),
        "output_tokens_per_s": round(sum(s.output_tokens for s in good) * per_second, 3),
        "ttft_ms": distribution(_known(good, lambda s: s.ttft)),
        "tpot_ms": distribution(_known(good, lambda s: s.tpot)),
        "itl_ms": distribution(gap for s in good for gap in s.gaps),
        "e2e_ms": distribution(s.e2e for s in good),
        "stages_ms": _stages(good),
    }


def _retry_after(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """The Retry-After headers of each kind of error that had some: how many, what they said."""
    told: dict[str, list[float]] = {}
    for sample in samples:
        if sample.error and sample.retry_after is not None:
            told.setdefault(sample.error, []).append(sample.retry_after)
    return {
        error: {"count": len(values), "p50": float(numpy.median(values)), "max": max(values)}
        for error, values in told.items()
    }


def _known(samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> list[float]:
    return [found for sample in samples if (found := value(sample)) is not None]


def _stages(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """The stages of the TTFT that the gateway reports, each a distribution."""
    stages: dict[str, list[float]] = {}
    for sample in samples:
        for name, seconds in sample.stages:
            stages.setdefault(name, []).append(seconds)
    return {name: distribution(values) for name, values in stages.items()}


def generator(samples: Sequence[Sample], effort: Effort) -> dict[str, Any]:
    """How punctual the generator was, and whether it was the bottleneck itself."""
    lateness = distribution(sample.lateness for sample in samples)
    share, waited = (
        seconds / effort.wall if effort.wall else 0.0 for seconds in (effort.cpu, effort.waited)
    )
    reasons = []
    if lateness.get("p99", 0.0) > LATE * 1000:
        reasons.append(f"1% of the requests were sent {lateness['p99']:.1f} ms late or more")
    if share > BUSY:
        reasons.append(f"it used {share:.0%} of a core")
    if waited > WAITING:
        reasons.append(f"it waited for a core {waited:.0%} of the time: others had them")
    return {
        "lateness_ms": lateness,
        "cpu_share": round(share, 4),
        "core_wait_share": round(waited, 4),
        "cpu_us_per_request": round(effort.cpu / len(samples) * 1e6, 1) if samples else 0.0,
        "wall_s": round(effort.wall, 3),
        "verdict": "bottleneck" if reasons else "kept its times",
        "bottleneck": reasons,
    }


def detail(samples: Sequence[Sample], effort: Effort, objective: Objective) -> dict[str, Any]:
    """All numbers of a run: measured requests over all and by class, the warm-up apart."""
    measured = [sample for sample in samples if not sample.warm_up]
    warm_up = [sample for sample in samples if sample.warm_up]
    names = sorted({sample.service_class for sample in measured})
    by_class = {
        name: of_class([s for s in measured if s.service_class == name], objective)
        for name in names
    }
    return {
        "all": of_class(measured, objective),
        "classes": by_class,
        "warm_up": of_class(warm_up, objective),
        "generator": generator(samples, effort),
    }


def flat(detail: dict[str, Any]) -> dict[str, float]:
    """The numbers that are compared between runs, one level deep: `short_ttft_ms_p99`, …"""
    found: dict[str, float] = {}
    for prefix, numbers in {"": detail["all"], **detail["classes"]}.items():
        name = f"{prefix}_" if prefix else ""
        for key in ("requests", "completed", "requests_per_s", "goodput_per_s"):
            found[name + key] = numbers[key]
        found[f"{name}errors"] = sum(numbers["errors"].values())
        found[f"{name}rejected_429"] = numbers["errors"].get("http_429", 0)
        for latency in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            for statistic in ("p50", "p99"):
                if statistic in numbers[latency]:
                    found[f"{name}{latency}_{statistic}"] = numbers[latency][statistic]
    lateness = detail["generator"]["lateness_ms"]
    found["generator_lateness_ms_p99"] = lateness.get("p99", 0.0)
    found["generator_cpu_share"] = detail["generator"]["cpu_share"]
    found["generator_was_bottleneck"] = len(detail["generator"]["bottleneck"])
    return found
