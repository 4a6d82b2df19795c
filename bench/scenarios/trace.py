"""Traces: a recorded workload replayed at 60 to 90% of what the engines can do.

Goodput is the share of requests whose first token comes within a target: 0.6 s for prompts up
to 1,024 tokens; for longer ones a second more than twice their own prefill on an idle engine
would take. The capacity is measured: the throughput of the same requests sent all at once.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.engine import EngineSpec
from bench.figures import in_milliseconds
from bench.policies import OTHERS, forebay, today
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.simulation import Outcome, Simulation
from bench.traces import MOONCAKE_BLOCK, read
from bench.workload import Job, at_rate
from scheduler.model import AffinitySpec, Placement, Settings

ENGINES = 4
LOADS = (0.6, 0.7, 0.8, 0.9)
BOUND = 1024
OURS = "forebay"
_SHORT_TARGET = 0.6


def target(job: Job, spec: EngineSpec) -> float:
    """Seconds within which the job's first token is in time."""
    if job.prompt <= BOUND:
        return _SHORT_TARGET
    return 1.0 + 2.0 * job.prompt * spec.prefill_per_token


def run(path: Path, requests: int) -> Report:
    """All policies at all loads on the first `requests` of the trace."""
    jobs = read(path, requests)
    has_prefix = any(job.prefix for job in jobs)
    spec = engine(A100_80GB, LLAMA_8B, block_tokens=MOONCAKE_BLOCK if has_prefix else 16)
    jobs = [job for job in jobs if job.prompt + job.output <= spec.kv_tokens]
    capacity = _capacity(jobs, spec)
    names = [OURS, *(placement.value for placement in OTHERS)]
    keys = [(load, name) for load in LOADS for name in names]
    with ProcessPoolExecutor() as pool:
        found = {
            (load, name): pool.submit(_numbers, at_rate(jobs, load * capacity), spec, name)
            for load, name in keys
        }
    detail: dict[str, dict[str, dict[str, float]]] = {}
    for (load, name), future in found.items():
        detail.setdefault(f"{load:.0%}", {})[name] = future.result()
    summary = {"capacity_rps": round(capacity, 3)}
    for load in LOADS:
        row = detail[f"{load:.0%}"]
        key = f"{load * 100:.0f}"
        summary[f"goodput_{key}"] = row[OURS]["goodput"]
        summary[f"goodput_best_other_{key}"] = max(row[p.value]["goodput"] for p in OTHERS)
    return Report(summary, dict(detail))


def _settings(name: str, spec: EngineSpec) -> Settings:
    if name != OURS:
        return today(Placement(name))
    return replace(forebay(short=BOUND), affinity=AffinitySpec(block_tokens=spec.block_tokens))


def _capacity(jobs: list[Job], spec: EngineSpec) -> float:
    """Requests a second while all engines are full: the middle of a run that starts full."""
    jobs = [replace(job, at=0.0) for job in jobs]
    ended = sorted(o.ended or 0.0 for o in _play(jobs, spec, Placement.LEAST_TOKENS.value))
    first, last = len(ended) // 10, len(ended) * 8 // 10
    return (last - first) / (ended[last] - ended[first])


def _play(jobs: list[Job], spec: EngineSpec, name: str) -> list[Outcome]:
    engines = {f"engine{index}": spec for index in range(ENGINES)}
    return Simulation(_settings(name, spec), engines).run(jobs)


def _numbers(jobs: list[Job], spec: EngineSpec, name: str) -> dict[str, float]:
    outcomes = _play(jobs, spec, name)
    good = sum(o.ttft is not None and o.ttft <= target(o.job, spec) for o in outcomes)
    numbers = {"goodput": round(good / len(outcomes), 4)}
    for kind, mine in (
        ("short", [o for o in outcomes if o.job.prompt <= BOUND]),
        ("long", [o for o in outcomes if o.job.prompt > BOUND]),
    ):
        numbers |= {f"{kind}_{key}": value for key, value in in_milliseconds(mine).items()}
    return numbers
