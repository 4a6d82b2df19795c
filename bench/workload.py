"""Requests to simulate or to send: when, how long, for whom. Seeded, and without any text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random


@dataclass(frozen=True, slots=True)
class Job:
    """One request. `at` is seconds from the start; sizes are tokens."""

    at: float
    prompt: int
    output: int = 1
    tenant: str = ""
    session: str = ""
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A prompt length, an answer length, and how often it comes, relative to the others."""

    prompt: int
    output: int
    weight: float


HEAD_OF_LINE = (Shape(100, 1, 0.9), Shape(8000, 1, 0.1))
"""Nine short prompts for each one that is 80 times as long."""


def mean_prompt(shapes: Sequence[Shape]) -> float:
    total = sum(shape.weight for shape in shapes)
    return sum(shape.prompt * shape.weight for shape in shapes) / total


def poisson(shapes: Sequence[Shape], rate: float, count: int, seed: int) -> list[Job]:
    """`count` requests at `rate` a second, each of a shape drawn by weight."""
    random = Random(seed)
    weights = [shape.weight for shape in shapes]
    at, jobs = 0.0, []
    for _ in range(count):
        at += random.expovariate(rate)
        shape = random.choices(shapes, weights)[0]
        jobs.append(Job(at, shape.prompt, shape.output))
    return jobs


def at_rate(jobs: Sequence[Job], rate: float) -> list[Job]:
    """The same requests in the same order and rhythm, stretched to a mean of `rate` a second."""
    factor = len(jobs) / (jobs[-1].at - jobs[0].at) / rate
    start = jobs[0].at
    return [replace(job, at=(job.at - start) * factor) for job in jobs]


def merge(*streams: Sequence[Job]) -> list[Job]:
    return sorted((job for stream in streams for job in stream), key=lambda job: job.at)


def resampled(jobs: Sequence[Job], rate: float, count: int, seed: int) -> list[Job]:
    """Sizes drawn from `jobs` with replacement, Poisson arrivals at `rate` a second."""
    return list(islice(_draw(jobs, rate, seed), count))


def _draw(jobs: Sequence[Job], rate: float, seed: int) -> Iterator[Job]:
    random, at = Random(seed), 0.0
    while True:
        at += random.expovariate(rate)
        yield replace(random.choice(jobs), at=at)
