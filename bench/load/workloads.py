"""What is to be sent, from what the command line says: a list of jobs with their times.

Three sources: distributions, a trace as it was recorded, and a trace's sizes in another rhythm.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench import traces
from bench.load.arrivals import Arrivals, jobs, limited, sizes
from bench.workload import Job, at_rate

RATE = 10.0

DURATION = 30.0
"""Seconds of an open loop that nothing else bounds."""

CLOSED_REQUESTS = 500
"""Requests of a closed loop that nothing else bounds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is sent. In a closed loop the jobs' times mean nothing, so only `requests` bounds
    them here."""

    requests: int | None = None
    duration: float | None = None
    closed: bool = False

    def of(self, endless: Iterator[Job]) -> list[Job]:
        if self.closed:
            return limited(endless, count=self.requests or CLOSED_REQUESTS, duration=None)
        unbounded = self.requests is None and self.duration is None
        duration = DURATION if unbounded else self.duration
        return limited(endless, count=self.requests, duration=duration)


@dataclass(frozen=True, slots=True)
class Workload:
    """`prompt` and `output` as `arrivals.sizes` reads them, for a run without a trace.

    `speed` replays a trace so many times as fast; a rate asks for its mean instead. `resample`
    takes only the trace's sizes, drawn by chance, and the times from `rhythm`.
    """

    rhythm: Arrivals
    limits: Limits
    prompt: str
    output: str
    trace: Path | None = None
    speed: float = 1.0
    resample: bool = False
    seed: int = 0

    def jobs(self, rate: float | None) -> list[Job]:
        """At `rate` requests a second, or as fast as recorded. Raises ValueError and OSError."""
        rhythm = replace(self.rhythm, rate=RATE if rate is None else rate)
        if self.trace is None:
            made = jobs(rhythm, sizes(self.prompt), sizes(self.output), seed=self.seed)
            return self.limits.of(made)
        recorded = traces.read(self.trace)
        if not recorded:
            raise ValueError(f"{self.trace} has no requests")
        if self.resample:
            return self.limits.of(_drawn(recorded, rhythm, self.seed))
        return self.limits.of(iter(self._replayed(recorded, rate)))

    def _replayed(self, recorded: list[Job], rate: float | None) -> list[Job]:
        if rate is not None:
            return at_rate(recorded, rate)
        return [replace(job, at=job.at / self.speed) for job in recorded]


def _drawn(recorded: list[Job], rhythm: Arrivals, seed: int) -> Iterator[Job]:
    """Without end, and without the prefixes: drawn at random, they would be no conversation."""
    random = Random(seed)
    for at in rhythm.times(random):
        yield replace(random.choice(recorded), at=at, prefix=())
