"""One simulation of a demand on so many engines: does it hold, or how good is it. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from bench.capacity.demand import Demand
from bench.capacity.objective import Account, Objective
from bench.figures import in_milliseconds
from bench.policies import forebay
from bench.simulation import Outcome, Simulation
from bench.workload import Job
from scheduler.model import AffinitySpec, Settings


class _Lost(Exception):
    """The objective cannot be held any more, whatever comes."""


def settings(demand: Demand, bound: int) -> Settings:
    """Forebay's own, with a queue that lets nobody out: a plan may not count on refusals."""
    blocks = AffinitySpec(block_tokens=demand.spec.block_tokens)
    return replace(forebay(short=bound), affinity=blocks)


def outcomes(demand: Demand, objective: Objective, engines: int) -> list[Outcome]:
    """Played to the end; the requests that are judged."""
    found = _simulation(demand, objective, engines).run(demand.jobs)
    return [outcome for outcome in found if outcome.job.at >= demand.warm_up]


def holds(demand: Demand, objective: Objective, engines: int) -> bool:
    """As `objective.missed` of all outcomes would say, but a run that is lost is not played on."""
    judged = demand.judged
    accounts = [
        (limit, Account(limit, sum(objective.concerns(limit, job) for job in judged)))
        for limit in objective.limits
    ]

    def watch(outcome: Outcome) -> Job | None:
        if outcome.job.at >= demand.warm_up:
            for limit, account in accounts:
                if objective.concerns(limit, outcome.job):
                    account.add(outcome.ttft)
                    if account.lost:
                        raise _Lost
        return None

    try:
        found = _simulation(demand, objective, engines).run(demand.jobs, then=watch)
    except _Lost:
        return False
    return all(o.ended is not None for o in found)


def numbers(demand: Demand, objective: Objective, engines: int) -> dict[str, float]:
    """TTFT in milliseconds, and the requests a second that are within their target."""
    found = outcomes(demand, objective, engines)
    share = good_share(found, objective)
    return in_milliseconds(found) | {
        "engines": engines,
        "good_share": round(share, 5),
        "goodput_rps": round(share * demand.rate, 3),
        "holds": float(not objective.missed(found)),
    }


def good_share(found: Sequence[Outcome], objective: Objective) -> float:
    good = sum((o.ttft if o.ttft is not None else inf) <= objective.target(o.job) for o in found)
    return good / max(1, len(found))


def _simulation(demand: Demand, objective: Objective, engines: int) -> Simulation:
    fleet = {f"engine{number:05}": demand.spec for number in range(engines)}
    return Simulation(settings(demand, objective.bound), fleet)
