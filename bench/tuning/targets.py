"""What can be tuned: an engine model, an engine of a plan, a real vLLM on this machine's CPU.

Each gives where the search begins (a plan) and how its candidates are measured.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from backends.managed.supervisor import ManagedSettings
from backends.plans import file
from backends.plans.file import BadPlan
from backends.plans.model import Engine, Flag, Plan
from backends.plans.rules import Demand, Hardware, flags_for
from backends.plans.shapes import Shape
from bench.idle.command import MAX_MODEL_LEN
from bench.idle.command import real as real_on_cpu
from bench.presets import A100_40GB, A100_80GB, H100_SXM, LLAMA_8B, Gpu
from bench.tuning.evidence import with_flags
from bench.tuning.managed import Managed
from bench.tuning.search import Evaluator
from bench.tuning.simulated import Simulated
from bench.tuning.space import NAMES, Space, around
from bench.tuning.traffic import ALL, Traffic
from bench.vllm_env import serve

GPUS: dict[str, Gpu] = {
    "a100-40gb": A100_40GB,
    "a100-80gb": A100_80GB,
    "h100": H100_SXM,
}
READY_WITHIN = 1800.0
"""Seconds that a managed engine has to load its model."""
_UNNAMED = "MODEL"
_BILLIONS = 8.0
_CPU = Hardware(size=0.1, gpu_memory=16)
"""Stands for a small CPU machine: 32 sequences for short prompts, by the rules."""


class EngineKind(StrEnum):
    """What is measured."""

    SIM = "sim"
    MANAGED = "managed"
    REAL = "real"


SIMULATED = ("lognormal:600:1.0", "lognormal:150:0.6", 5.0)
ON_CPU = ("150@0.9,2000@0.1", "16", 8.0)
"""Prompts, answers and requests a second where the command line says nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """`plan` is where the search begins; `name` the engine in it that is tuned."""

    plan: Plan
    name: str
    space: Space
    evaluator: Evaluator


def simulated(gpu: str, traffic: Traffic) -> Target:
    """Llama 3.1 8B on one of these GPUs, from the rules for it and for such prompts."""
    found = GPUS[gpu]
    demand = _demand(traffic)
    rules = flags_for(Hardware(_BILLIONS, found.memory / 1e9), demand)
    plan = Plan((_engine(_UNNAMED, traffic, rules),), notes=(f"put a model for {_UNNAMED}",))
    return Target(plan, demand.service_class, around(rules), Simulated(found, LLAMA_8B, traffic))


def managed(path: Path, name: str | None, traffic: Traffic, folder: Path) -> Target:
    """An engine of a plan file, started as the plan says. Raises BadPlan."""
    plan = file.read(path)
    named = {engine.name: engine for engine in plan.engines}
    if name is None and len(named) == 1:
        (name,) = named
    if name not in named:
        raise BadPlan(f"which engine? --name takes one of {', '.join(named)}")
    settings = ManagedSettings(plan.command)
    evaluator = Managed(named[name], settings, traffic, folder, READY_WITHIN)
    return Target(plan, name, around(named[name].flags), evaluator)


def real(traffic: Traffic, folder: Path) -> Target:
    """vLLM on the CPU with the tiny model. gpu_memory_utilization is not searched: it has no
    meaning there, where VLLM_CPU_KVCACHE_SPACE says how large the KV cache is."""
    on_cpu = real_on_cpu((), 0)
    demand = _demand(traffic)
    wanted = NAMES["max_num_seqs"], NAMES["max_num_batched_tokens"]
    rules = tuple(flag for flag in flags_for(_CPU, demand) if flag.name in wanted)
    space = around(rules, longest=MAX_MODEL_LEN)
    engine = with_flags(on_cpu.engine, space.start, {flag.name: flag.reason for flag in rules})
    settings = ManagedSettings(on_cpu.managed.command)
    plan = Plan((_named(engine, traffic),), command=settings.command)
    evaluator = Managed(engine, settings, traffic, folder, serve.READY_WITHIN)
    return Target(plan, demand.service_class, space, evaluator)


def _demand(traffic: Traffic) -> Demand:
    """The class's prompts, as its traffic has them."""
    lengths = sorted(job.prompt for job in traffic.jobs(0) if traffic.counts(job))
    if not lengths:
        raise ValueError(f"no request of the traffic is of class {traffic.service_class}")
    shape = Shape(
        mean=sum(lengths) / len(lengths),
        p95=lengths[int(0.95 * (len(lengths) - 1))],
        longest=lengths[-1],
        requests=len(lengths),
    )
    return Demand(traffic.service_class, shape, traffic.target)


def _engine(model: str, traffic: Traffic, rules: tuple[Flag, ...]) -> Engine:
    return _named(Engine("", model, (), 8001, flags=rules), traffic)


def _named(engine: Engine, traffic: Traffic) -> Engine:
    """As a plan has it: named for its class, on vLLM's second port."""
    name = traffic.service_class
    return replace(engine, name=name, classes=() if name == ALL else (name,), port=8001)
