"""What is advised helps, on the engine model: the same traffic before and after the change."""

from dataclasses import replace
from random import Random

from backends.types import Load
from bench.engine import EngineSpec
from bench.policies import forebay
from bench.simulation import Outcome, Simulation, ready
from bench.workload import Job
from gateway.memory.signs import Sign, judge
from gateway.memory.usage import Usage
from scheduler.model import Settings

SEATS = 32
SPEC = EngineSpec(
    step_base=0.01,
    prefill_per_token=50e-6,
    decode_per_seq=1e-4,
    kv_tokens=24_000,
    max_num_seqs=SEATS,
)
PATIENT = forebay()


def traffic(count: int = 700) -> list[Job]:
    """One prompt in eight takes more than a third of the cache."""
    random, at, jobs = Random(1), 0.0, []
    for _ in range(count):
        at += random.expovariate(2.0)
        jobs.append(Job(at, 9000 if random.random() < 0.12 else 400, random.randint(100, 300)))
    return jobs


def played(settings: Settings, limit: int = SEATS) -> Usage:
    """A reading whenever an answer ends."""
    simulation = Simulation(settings, {"e": SPEC}, [replace(ready("e", SPEC), limit=limit)])
    engine, usage = simulation.engines["e"], Usage()

    def read(outcome: Outcome) -> Job | None:
        at = outcome.ended or 0.0
        load = Load("e", at, engine.running, engine.waiting, engine.kv_usage, engine.preemptions, 0)
        usage.saw(load, limit)
        return None

    simulation.run(traffic(), scrape=True, then=read)
    return usage.clear()


def test_the_advised_limits_end_preemptions_and_stranded_memory() -> None:
    before = played(PATIENT)
    found = {finding.sign: finding for finding in judge("e", SEATS, before, None)}
    assert {Sign.PREEMPTING, Sign.STRANDED} <= set(found)
    fitting = played(PATIENT, limit=int(found[Sign.PREEMPTING].to))
    assert before.preemptions > 0
    assert fitting.preemptions == 0
    short, long = PATIENT.classes
    fewer = played(replace(PATIENT, classes=(short, replace(long, limit=2))))
    assert fewer.stranded < before.stranded / 2
