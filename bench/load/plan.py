"""From a workload to requests: a text of the right length for each, with the right prefix."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.exchange import Request
from bench.load.prompts import Prompts
from bench.traces import MOONCAKE_BLOCK
from bench.workload import Job


@dataclass(frozen=True, slots=True)
class Lengths:
    """`block` is the number of tokens that an entry of Job.prefix stands for.

    Prompts of up to `short` tokens are called short, the others long, unless the server names
    classes itself.
    """

    block: int = MOONCAKE_BLOCK
    short: int = 1024


class Planner:
    """`overhead` is what a chat template adds to a prompt, in tokens: a Job counts it in."""

    def __init__(self, prompts: Prompts, lengths: Lengths, *, overhead: int, seed: int) -> None:
        self._prompts = prompts
        self._lengths = lengths
        self._overhead = overhead
        self._seed = seed

    def requests(self, jobs: Sequence[Job], *, warm_up: float) -> list[Request]:
        """In the jobs' order; those planned for the first `warm_up` seconds are marked as such.
        (A closed loop goes by when each was begun.)"""
        return [self._request(number, job, warm_up) for number, job in enumerate(jobs)]

    def _request(self, number: int, job: Job, warm_up: float) -> Request:
        tokens = max(1, job.prompt - self._overhead)
        if job.prefix:
            parts = self._prompts.chained(tokens, job.prefix, self._lengths.block)
        else:
            parts = [self._prompts.text(tokens, hash((self._seed, number)))]
        return Request(
            number=number,
            at=job.at,
            parts=parts,
            prompt_tokens=job.prompt,
            output_tokens=job.output,
            service_class="short" if job.prompt <= self._lengths.short else "long",
            warm_up=job.at < warm_up,
        )
