"""Headline: many requests a second, short and long mixed as in a trace, and how many engines.

The source's target at scale: mean TTFT at most 200 ms and p99 at most 600 ms. For each policy
the fewest A100-class engines that hold it, with sizes drawn from the trace and Poisson arrivals.
Without a trace the sizes are of eight kinds, counted in 199 consecutive requests of the Azure
conversation trace.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from math import ceil, inf
from pathlib import Path

from bench.coarse import CoarseEngine
from bench.figures import in_milliseconds
from bench.policies import PEERS, forebay, today
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.simulation import Simulation
from bench.traces import read
from bench.workload import Job, Shape, resampled
from scheduler.model import Placement, Settings

MEAN_TARGET_MS = 200.0
P99_TARGET_MS = 600.0
OURS = "forebay"
_SPEC = engine(A100_80GB, LLAMA_8B)
# The longest streams last so long; before that the engines are emptier than they will be.
_WARM_UP = 40.0
# A first token that has not come this long after the last arrival is late by any measure.
_PATIENCE = 3.0
_PRECISION = 0.02
# The estimate comes from a fleet so much smaller, which costs so much less to simulate.
_SCALE = 10
KINDS = (
    Shape(84, 125, 14),
    Shape(192, 187, 24),
    Shape(398, 91, 24),
    Shape(931, 366, 28),
    Shape(1088, 417, 88),
    Shape(1319, 177, 9),
    Shape(2151, 66, 7),
    Shape(4082, 43, 5),
)
"""Requests of the trace from 18:16:45 to 18:17:30, by the length of their prompts: the means."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests a second, for how many seconds, with sizes like these."""

    sizes: tuple[Job, ...]
    rate: float
    seconds: float

    @property
    def guess(self) -> int:
        """Engines that the prefill alone would keep busy."""
        mean = sum(job.prompt for job in self.sizes) / len(self.sizes)
        return ceil(self.rate * mean * _SPEC.prefill_per_token)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search begins, and its first stride as a share of that."""

    engines: int
    stride: float


def run(trace: Path | None, rate: float, seconds: float) -> Report:
    """The fewest engines for ours and for each of today's policies."""
    sizes = tuple(read(trace)) if trace is not None else tuple(counted())
    plan = Plan(sizes, rate, seconds)
    names = [OURS, *(placement.value for placement in PEERS)]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(names, pool.map(least, names, [plan] * len(names)), strict=True))
    ours = found[OURS]
    summary = {
        "rate_rps": rate,
        "ttft_mean_ms": ours["mean"],
        "ttft_p99_ms": ours["p99"],
        "engines": ours["engines"],
        "engines_best_other": min(found[p.value]["engines"] for p in PEERS),
    }
    return Report(summary, dict(found))


def counted() -> Iterator[Job]:
    for kind in KINDS:
        yield from repeat(Job(0.0, kind.prompt, kind.output), round(kind.weight))


def _settings(name: str) -> Settings:
    return forebay() if name == OURS else today(Placement(name))


def least(name: str, plan: Plan) -> dict[str, float]:
    """The fewest engines that hold the target, to 2%, with the TTFT that they reach.

    `too_few`, `too_few_mean` and `too_few_p99` are the most that were tried and did not hold it.
    The search begins with what a fleet of a tenth serves a tenth of the rate with.
    """
    small = replace(plan, rate=plan.rate / _SCALE)
    about = _search(name, small, Start(max(1, 3 * small.guess // 2), 0.25))
    engines = _SCALE * int(about["engines"])
    return _search(name, plan, Start(engines, 2 * _PRECISION))


def _search(name: str, plan: Plan, start: Start) -> dict[str, float]:
    """In growing strides until some fleet holds the target and a smaller one does not; then
    between those two, by halves."""
    holding: dict[str, float] | None = None
    enough, too_few, missed = 0, 0, {"mean": inf, "p99": inf}
    engines, stride = start.engines, max(1, round(start.stride * start.engines))
    while holding is None or enough - too_few > max(1, int(_PRECISION * enough)):
        reached = numbers(name, plan, engines)
        if holds(reached):
            enough, holding = engines, reached
        else:
            too_few, missed = engines, reached
        if holding is not None and too_few:
            engines = (too_few + enough) // 2
        else:
            engines = max(enough - stride, enough // 2) if enough else too_few + stride
            stride *= 2
    fewer = {"too_few": too_few, "too_few_mean": missed["mean"], "too_few_p99": missed["p99"]}
    return holding | {"engines": enough} | fewer


def holds(reached: dict[str, float]) -> bool:
    return reached["mean"] <= MEAN_TARGET_MS and reached["p99"] <= P99_TARGET_MS


def numbers(name: str, plan: Plan, engines: int) -> dict[str, float]:
    """The times to first token that so many engines reach."""
    end = _WARM_UP + plan.seconds
    jobs = resampled(plan.sizes, plan.rate, int(plan.rate * end), seed=1)
    fleet = {f"engine{index:05}": _SPEC for index in range(engines)}
    simulation = Simulation(_settings(name), fleet, model=CoarseEngine)
    outcomes = simulation.run(jobs, until=end + _PATIENCE)
    for outcome in outcomes:
        if outcome.first_token is None:
            outcome.first_token = end + _PATIENCE
    return in_milliseconds([outcome for outcome in outcomes if outcome.job.at >= _WARM_UP])
