"""A small demand that a search and brute force can both play."""

from dataclasses import replace
from random import Random

from bench.capacity.demand import Demand, Rhythm, demand
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.workload import Job

SPEC = replace(engine(A100_80GB, LLAMA_8B), kv_tokens=40_000)


def sizes(count: int, seed: int) -> list[Job]:
    """Crowds and lulls in turn; prompts as a chat has them, short answers to save time."""
    random, at, jobs = Random(seed), 0.0, []
    for number in range(count):
        at += random.expovariate(4.0 if number // 40 % 2 else 1.0)
        prompt = min(8000, int(random.lognormvariate(6.5, 0.8)) + 1)
        jobs.append(Job(at, prompt, random.randint(1, 20)))
    return jobs


def small(rate: float, *, seed: int = 1, count: int = 500, rhythm: Rhythm = Rhythm.TRACE) -> Demand:
    return demand(sizes(count, seed), SPEC, rate, 1.0, rhythm)
