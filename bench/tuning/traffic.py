"""The requests of a window: the same ones for every candidate, others in every window. Pure."""

from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from bench.load.arrivals import Arrivals, jobs, sizes
from bench.workload import Job, resampled

SHORT, LONG, ALL = "short", "long", "all"
CLASSES = (SHORT, LONG, ALL)


@dataclass(frozen=True, slots=True)
class Traffic:
    """`prompt` and `output` are distributions as `bench load` reads them; `recorded` requests, if
    there are any, are drawn from instead. `bound` parts short prompts from long ones,
    `service_class` is the class that counts, `target` the TTFT in seconds of a good answer."""

    rate: float
    requests: int
    prompt: str
    output: str
    recorded: tuple[Job, ...] = ()
    bound: int = 1024
    service_class: str = SHORT
    target: float = 0.6
    seed: int = 0

    def jobs(self, number: int) -> list[Job]:
        """The requests of this window. Raises ValueError for a distribution that is none."""
        seed = Random(f"{self.seed}/{number}").getrandbits(32)
        if self.recorded:
            drawn = resampled(self.recorded, self.rate, self.requests, seed)
            return [replace(job, prefix=()) for job in drawn]
        endless = jobs(Arrivals(self.rate), sizes(self.prompt), sizes(self.output), seed=seed)
        return list(islice(endless, self.requests))

    def counts(self, job: Job) -> bool:
        """Whether it is of the class that is tuned for."""
        if self.service_class == ALL:
            return True
        return (job.prompt <= self.bound) is (self.service_class == SHORT)
