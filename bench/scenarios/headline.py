"""Headline: many requests a second, short and long mixed as in a trace, and how many engines.

The source's target at scale: mean TTFT at most 200 ms and p99 at most 600 ms. For each policy
the least number of A100-class engines that holds it, found by bisection on sizes drawn from the
trace and Poisson arrivals. Without a trace the sizes are log-normal with the medians that are
published of the Azure conversation trace (1,020 prompt tokens, 129 answer tokens).
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from random import Random

from bench.figures import in_milliseconds
from bench.policies import PEERS, forebay, today
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.simulation import Outcome, Simulation
from bench.traces import read
from bench.workload import Job, resampled
from scheduler.model import Placement, Settings

MEAN_TARGET_MS = 200.0
P99_TARGET_MS = 600.0
OURS = "forebay"
_SPEC = engine(A100_80GB, LLAMA_8B)
# Streams last some seconds; before that the engines are emptier than they will be.
_WARM_UP = 8.0
_PRECISION = 0.02


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


def run(trace: Path | None, rate: float, seconds: float) -> Report:
    """The least engines for ours and for each of today's policies."""
    sizes = tuple(read(trace)) if trace is not None else _published()
    plan = Plan(sizes, rate, seconds)
    names = [OURS, *(placement.value for placement in PEERS)]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(names, pool.map(_least, names, [plan] * len(names)), strict=True))
    ours = found[OURS]
    summary = {
        "rate_rps": rate,
        "ttft_mean_ms": ours["mean"],
        "ttft_p99_ms": ours["p99"],
        "engines": ours["engines"],
        "engines_best_other": min(found[p.value]["engines"] for p in PEERS),
    }
    return Report(summary, dict(found))


def _published() -> tuple[Job, ...]:
    random = Random(0)
    return tuple(
        Job(
            0.0,
            max(1, min(int(random.lognormvariate(log(1020), 0.8)), 14_000)),
            max(1, min(int(random.lognormvariate(log(129), 0.9)), 1_000)),
        )
        for _ in range(20_000)
    )


def _settings(name: str) -> Settings:
    return forebay() if name == OURS else today(Placement(name))


def _least(name: str, plan: Plan) -> dict[str, float]:
    """The fewest engines that hold the target, to 2%, with the TTFT that they reach."""
    too_few, enough = plan.guess, 2 * plan.guess
    while not _holds(best := _numbers(name, plan, enough)):
        too_few, enough = enough, 2 * enough
    while enough - too_few > max(1, int(_PRECISION * enough)):
        middle = (too_few + enough) // 2
        numbers = _numbers(name, plan, middle)
        if _holds(numbers):
            enough, best = middle, numbers
        else:
            too_few = middle
    return best | {"engines": enough}


def _holds(numbers: dict[str, float]) -> bool:
    return numbers["mean"] <= MEAN_TARGET_MS and numbers["p99"] <= P99_TARGET_MS


def _numbers(name: str, plan: Plan, engines: int) -> dict[str, float]:
    jobs = resampled(plan.sizes, plan.rate, int(plan.rate * (_WARM_UP + plan.seconds)), seed=1)
    fleet = {f"engine{index:05}": _SPEC for index in range(engines)}
    outcomes: list[Outcome] = Simulation(_settings(name), fleet).run(jobs)
    return in_milliseconds([o for o in outcomes if o.job.at >= _WARM_UP])
