"""What a fleet must hold: times to first token, over all requests or those of one class. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from bench.figures import needed
from bench.simulation import Outcome
from bench.workload import Job

BEYOND = 10
"""Requests that must lie beyond a percentile: with fewer, luck decides."""

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
ALL, SHORT, LONG = "", "short", "long"


@dataclass(frozen=True, slots=True)
class Limit:
    """`seconds` that a statistic of the TTFT may not exceed, for one class ("" is all of them)."""

    service_class: str
    statistic: str
    seconds: float

    def __str__(self) -> str:
        name = f"{self.service_class}." if self.service_class else ""
        return f"{name}{self.statistic}={self.seconds * 1e3:g}"

    @property
    def least(self) -> int:
        """So many requests say something about it."""
        return 10 * BEYOND if self.share is None else round(BEYOND / (1 - self.share))

    @property
    def share(self) -> float | None:
        """The share of the requests that must be within it; None for a mean."""
        return None if self.statistic == "mean" else int(self.statistic[1:]) / 100


@dataclass(frozen=True, slots=True)
class Objective:
    """All limits together; a request is short up to `bound` prompt tokens."""

    limits: tuple[Limit, ...]
    bound: int

    def __str__(self) -> str:
        return ",".join(map(str, self.limits))

    def concerns(self, limit: Limit, job: Job) -> bool:
        return limit.service_class in (ALL, SHORT if job.prompt <= self.bound else LONG)

    def too_few(self, jobs: Sequence[Job]) -> list[str]:
        """What so few requests cannot tell, in words."""
        counts = {limit: sum(self.concerns(limit, job) for job in jobs) for limit in self.limits}
        return [
            f"{limit} needs {limit.least} requests, not {count}"
            for limit, count in counts.items()
            if count < limit.least
        ]

    def target(self, job: Job) -> float:
        """Within what this request is good: the longest time that a limit of its own class grants
        it, else one for all; infinite when only means are asked for."""
        mine = [
            limit for limit in self.limits if limit.share is not None and self.concerns(limit, job)
        ]
        own = [limit for limit in mine if limit.service_class] or mine
        return max((limit.seconds for limit in own), default=inf)

    def missed(self, outcomes: Sequence[Outcome]) -> list[Limit]:
        """The limits that these outcomes do not hold. One without a first token holds none."""
        found = []
        for limit in self.limits:
            concerned = [outcome for outcome in outcomes if self.concerns(limit, outcome.job)]
            account = Account(limit, len(concerned))
            for outcome in concerned:
                account.add(outcome.ttft)
            if account.lost:
                found.append(limit)
        return found


class Account:
    """One limit while its `count` requests come in: `lost` once no further one can save it."""

    def __init__(self, limit: Limit, count: int) -> None:
        share = limit.share
        self._bound = limit.seconds
        self._left: float = inf if share is None else count - needed(count, share)
        self._seconds = limit.seconds * count if share is None else inf
        self.lost = False

    def add(self, ttft: float | None) -> None:
        self._left -= ttft is None or ttft > self._bound
        self._seconds -= inf if ttft is None else ttft
        self.lost = self.lost or self._left < 0 or self._seconds < 0


def parse(text: str, bound: int) -> Objective:
    """`mean=200,p99=600`, or of a class: `short.p99=600`; milliseconds. Raises ValueError."""
    return Objective(tuple(_limit(part.strip()) for part in text.split(",")), bound)


def _limit(text: str) -> Limit:
    name, _, value = text.partition("=")
    service_class, _, statistic = name.rpartition(".")
    try:
        seconds = float(value) / 1e3
    except ValueError:
        seconds = 0.0
    known = service_class in (ALL, SHORT, LONG) and statistic in STATISTICS
    if not known or not 0 < seconds < inf:
        raise ValueError(
            f"an objective is [short.|long.]STATISTIC=MILLISECONDS with one of "
            f"{', '.join(STATISTICS)}, such as mean=200,short.p99=600; not {text!r}"
        )
    return Limit(service_class, statistic, seconds)
