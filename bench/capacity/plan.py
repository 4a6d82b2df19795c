"""The whole answer: the ladder of searches, the curve around it, and brute force to compare with.

Searches and simulations of their own run side by side, one for each core.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from bench.capacity import play
from bench.capacity.demand import Demand, alone
from bench.capacity.objective import Objective
from bench.capacity.search import Found, least
from bench.figures import percentile
from bench.simulation import Outcome

AROUND = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)
"""Of the answer: where the curve has its points."""


class Unattainable(ValueError):
    """No number of engines holds the objective: the engine itself is too slow for it."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """`random` has random moments, `asked` the rhythm that was asked for; None when that is the
    same."""

    random: Demand
    asked: Demand | None

    def steps(self) -> Iterator[tuple[str, Demand]]:
        yield "prefill", self.random.without_answers().with_endless_kv()
        yield "decode", self.random.with_endless_kv()
        yield "kv", self.random
        if self.asked is not None:
            yield "rhythm", self.asked


def check(demand: Demand, objective: Objective) -> None:
    """Raises Unattainable when requests that have an engine for themselves miss the objective.

    Not where prompts share prefixes: what is cached then is known only while it is played.
    """
    if any(job.prefix for job in demand.jobs):
        return
    times: dict[int, float] = {}
    for job in demand.judged:
        if job.prompt not in times:
            times[job.prompt] = alone(job, demand.spec)
    best = [Outcome(job, first_token=job.at + times[job.prompt]) for job in demand.judged]
    for limit in objective.missed(best):
        mine = [o.ttft or 0.0 for o in best if objective.concerns(limit, o.job)]
        share = limit.share
        reached = percentile(mine, share) if share else sum(mine) / len(mine)
        raise Unattainable(
            f"no number of engines holds {limit}: requests that each have an engine for "
            f"themselves reach {reached * 1e3:.0f} ms; use a faster engine, or a looser objective"
        )


def climb(ladder: Ladder, objective: Objective, pool: Executor) -> dict[str, Found]:
    """The fewest engines at each step. Raises NeverHolds."""
    searches = {name: pool.submit(fewest, demand, objective) for name, demand in ladder.steps()}
    return {name: search.result() for name, search in searches.items()}


def fewest(demand: Demand, objective: Objective) -> Found:
    return least(partial(play.holds, demand, objective), demand.prefill_work)


def curve(
    demand: Demand, objective: Objective, counts: list[int], pool: Executor
) -> list[dict[str, float]]:
    """What each number of engines gives, each played to its end."""
    return list(pool.map(partial(play.numbers, demand, objective), counts))


def around(answer: int, *others: int) -> list[int]:
    return sorted({max(1, round(answer * share)) for share in AROUND} | set(others))


def brute_force(points: list[dict[str, float]]) -> int:
    """The number from which on every one holds, when every number from 1 on is among the points."""
    failing = [point["engines"] for point in points if not point["holds"]]
    return int(max(failing, default=0)) + 1


def runs(found: Mapping[str, Found]) -> int:
    return sum(len(one.tried) for one in found.values())
