"""Which bound of the smallest class is best for what was logged, as the simulator finds. Pure.

A bound decides who is called short, so no figure of a class can judge it. Each request is judged by
itself, whatever it is called: its *stretch* is its TTFT over what it may expect, the smallest
class's target and twice its own prefill. The best bound has the least p99 of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from math import inf

from bench.capacity.demand import alone
from bench.engine import EngineSpec
from bench.figures import percentile
from bench.recalibrate.fleet import Situation, play
from bench.recalibrate.log import Seen
from bench.traces import LOGGED_ANSWER
from bench.workload import Job

FACTORS = (0.5, 0.7, 1.4, 2.0)
"""Of the present bound: a week's change is bounded, and what is better still is there next week."""

GRAIN = 16
"""Bounds are multiples of it."""

GAIN = 0.1
"""By which a bound must be better in all parts together, and may not be worse in any by half of
it: smaller gains are not worth a change."""

PARTS = 3
PLAYED = 2000
"""Parts of the log that are played, the fullest, and requests of each."""

ENOUGH = 100
"""Requests that a part must have, beside a fuller one: the p99 of fewer is the slowest of them."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One bound: the p99 stretch of all parts together, and of each."""

    bound: int
    stretch: float
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`best` is `now` when no other bound is worth a change."""

    now: Tried
    best: Tried
    tried: tuple[Tried, ...]


def jobs_of(part: Sequence[Seen]) -> list[Job]:
    """As they came. Answers that did not tell their length are taken to be of a usual one."""
    start = part[0].arrived
    return [Job(one.arrived - start, one.prompt, one.output or LOGGED_ANSWER) for one in part]


def candidates(situation: Situation) -> list[int]:
    """The present bound and those around it, below the next class's."""
    now = situation.smallest.max_prompt_tokens
    assert now is not None, "of two classes the smaller one has a bound"
    rounded = {max(GRAIN, round(now * factor / GRAIN) * GRAIN) for factor in FACTORS}
    return sorted({now, *(bound for bound in rounded if bound < situation.next_bound)})


def try_all(
    situation: Situation, spec: EngineSpec, parts: Sequence[Sequence[Seen]], pool: Executor
) -> Choice:
    """Play every candidate on the fullest parts."""
    played = [jobs_of(part)[:PLAYED] for part in judged(parts)]
    runs = {
        bound: [pool.submit(stretches, situation, spec, bound, jobs) for jobs in played]
        for bound in candidates(situation)
    }
    found = {bound: [run.result() for run in futures] for bound, futures in runs.items()}
    now = situation.smallest.max_prompt_tokens
    assert now is not None
    return choose(now, found)


def judged(parts: Sequence[Sequence[Seen]]) -> list[Sequence[Seen]]:
    """The fullest parts that have enough to judge by; the fullest one in any case."""
    first, *others = sorted(parts, key=len, reverse=True)[:PARTS]
    return [first, *(part for part in others if len(part) >= ENOUGH)]


def choose(now: int, found: Mapping[int, Sequence[Sequence[float]]]) -> Choice:
    """From the stretches of each bound in each part."""
    tried = {
        bound: Tried(bound, _p99(s for part in parts for s in part), tuple(map(_p99, parts)))
        for bound, parts in found.items()
    }
    present = tried[now]
    better = [one for one in tried.values() if _worth_it(one, present)]
    best = min(better, key=lambda one: one.stretch, default=present)
    return Choice(present, best, tuple(tried.values()))


def stretches(
    situation: Situation, spec: EngineSpec, bound: int, jobs: Sequence[Job]
) -> list[float]:
    target = partial(expected, situation.smallest.ttft_target, spec)
    return [
        (inf if o.ttft is None else o.ttft) / target(o.job)
        for o in play(situation, spec, bound, jobs)
    ]


def expected(target: float, spec: EngineSpec, job: Job) -> float:
    """What a request may expect: the target, and twice the time that it takes alone."""
    return target + 2.0 * alone(job, spec)


def _worth_it(one: Tried, now: Tried) -> bool:
    return one.stretch <= (1 - GAIN) * now.stretch and all(
        mine <= (1 + GAIN / 2) * theirs for mine, theirs in zip(one.parts, now.parts, strict=True)
    )


def _p99(values: Iterable[float]) -> float:
    return percentile(values, 0.99)
