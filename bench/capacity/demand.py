"""What is planned for: requests of a trace at a rate, and the engine that serves them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from bench.engine import Engine, EngineSpec
from bench.workload import Job, at_rate, resampled

ENDLESS_KV = 1 << 40
"""Tokens: a cache that no fleet of requests fills."""

_SEED = 1


class Rhythm(StrEnum):
    """How requests come: in the trace's own rhythm, stretched to the rate, or at random moments."""

    TRACE = "trace"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True)
class Demand:
    """`jobs` are played; those that come in the first `warm_up` seconds, while the engines fill,
    are not judged."""

    jobs: tuple[Job, ...]
    spec: EngineSpec
    rate: float
    warm_up: float

    @property
    def judged(self) -> list[Job]:
        return [job for job in self.jobs if job.at >= self.warm_up]

    @property
    def prefill_work(self) -> int:
        """Engines that reading the prompts alone would keep busy, one at least."""
        mean = sum(job.prompt for job in self.jobs) / len(self.jobs)
        return max(1, ceil(self.rate * mean * self.spec.prefill_per_token))

    def without_answers(self) -> "Demand":
        """One token each: what remains is prefill and waiting for it."""
        return replace(self, jobs=tuple(replace(job, output=1) for job in self.jobs))

    def with_endless_kv(self) -> "Demand":
        return replace(self, spec=replace(self.spec, kv_tokens=ENDLESS_KV))


def demand(
    sizes: Sequence[Job], spec: EngineSpec, rate: float, warm_up: float, rhythm: Rhythm
) -> Demand:
    """As many requests as `sizes`, of which `servable` leaves out what no engine could hold.

    Raises ValueError when there are none.
    """
    if len(sizes) < 2:
        raise ValueError("the trace has no requests that an engine could hold")
    if rhythm is Rhythm.TRACE:
        jobs = at_rate(sizes, rate)
    else:
        jobs = resampled(sizes, rate, len(sizes), _SEED)
    return Demand(tuple(jobs), spec, rate, warm_up)


def servable(jobs: Sequence[Job], spec: EngineSpec) -> list[Job]:
    return [job for job in jobs if job.prompt + job.output <= spec.kv_tokens]


def alone(job: Job, spec: EngineSpec) -> float:
    """The TTFT of a request that has an engine for itself: no fleet can do better."""
    engine = Engine(replace(spec, kv_tokens=ENDLESS_KV))
    engine.add("", job.prompt, 1, 0.0)
    while (at := engine.next_event()) is not None:
        for emitted in engine.advance(at):
            return emitted.at
    raise AssertionError("a lone request always gets its token")
