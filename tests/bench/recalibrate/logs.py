"""Logs of engines whose costs are known: simulated, with what stands before an engine on top."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import orjson

from bench.engine import EngineSpec
from bench.policies import forebay
from bench.recalibrate.log import Seen
from bench.simulation import Outcome, Simulation
from bench.workload import Job

START = 1_800_000_000.0
SPEC = EngineSpec(
    step_base=0.012, prefill_per_token=120e-6, decode_per_seq=0.4e-3, kv_tokens=400_000
)
OVERHEAD = 0.006


def traffic(count: int, rate: float, seed: int = 1, longest: int = 6000) -> list[Job]:
    random, at, jobs = Random(seed), 0.0, []
    for _ in range(count):
        at += random.expovariate(rate)
        prompt = min(longest, int(random.lognormvariate(6.0, 1.0)) + 1)
        jobs.append(Job(at, prompt, random.randint(2, 60)))
    return jobs


def played(jobs: Sequence[Job], specs: Sequence[EngineSpec]) -> list[Seen]:
    engines = {f"b-{number}": spec for number, spec in enumerate(specs)}
    return [seen(outcome) for outcome in Simulation(forebay(), engines).run(jobs)]


def seen(outcome: Outcome) -> Seen:
    assert outcome.dispatched is not None
    assert outcome.first_token is not None
    assert outcome.ended is not None
    return Seen(
        backend=outcome.backend,
        service_class=outcome.service_class,
        prompt=outcome.job.prompt,
        output=outcome.job.output,
        arrived=START + outcome.job.at,
        sent=START + outcome.dispatched,
        first=START + outcome.first_token + OVERHEAD,
        ended=START + outcome.ended + OVERHEAD,
    )


def line(one: Seen) -> bytes:
    """As the gateway writes it."""
    first = one.first
    stages = {"read": 0.0, "tokenize": 0.0, "queue": one.sent - one.arrived, "connect": 0.0}
    document = {
        "outcome": "completed",
        "backend": one.backend,
        "service_class": one.service_class,
        "prompt_tokens": one.prompt,
        "output_tokens": one.output,
        "stages": stages if first is None else stages | {"backend": first - one.sent},
        "ttft": None if first is None else first - one.arrived,
        "e2e": one.ended - one.arrived,
        "time": one.ended,
    }
    return orjson.dumps(document) + b"\n"


def write(path: Path, requests: Sequence[Seen], *, shifted: float = 0.0) -> Path:
    """In the order of their ends, as a log is; all times moved by `shifted` seconds."""
    moved = [
        replace(
            one,
            arrived=one.arrived + shifted,
            sent=one.sent + shifted,
            first=None if one.first is None else one.first + shifted,
            ended=one.ended + shifted,
        )
        for one in requests
    ]
    path.write_bytes(b"".join(map(line, sorted(moved, key=lambda one: one.ended))))
    return path
