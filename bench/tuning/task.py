"""What a search is asked for, and what of it a study file is for. Pure."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.tuning.objective import Aim
from bench.tuning.search import Budget
from bench.tuning.space import NAMES
from bench.tuning.targets import EngineKind, Target
from bench.tuning.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for, beside the traffic."""

    kind: EngineKind
    gpu: str
    plan: Path | None
    name: str | None
    aim: Aim
    budget: Budget
    seed: int
    study: Path | None
    flags: tuple[str, ...]


def task_of(order: Order, traffic: Traffic, target: Target) -> dict[str, Any]:
    """What a study file is for: with anything of it changed its measurements mean nothing."""
    recorded = [(job.at, job.prompt, job.output) for job in traffic.recorded]
    asked = asdict(replace(traffic, recorded=()))
    (engine,) = (engine for engine in target.plan.engines if engine.name == target.name)
    return {
        "engine": order.kind.value,
        "gpu": order.gpu if order.kind is EngineKind.SIM else None,
        "aim": order.aim.value,
        "windows": order.budget.windows,
        "traffic": asked | {"recorded": len(recorded), "recorded_sha256": _digest(recorded)},
        "model": engine.model,
        "command": list(target.plan.command),
        "gpus": list(engine.gpus),
        # Only their digest: a plan may hold a token, and this goes into the result, too.
        "environment_sha256": _digest(
            sorted((variable.name, variable.value) for variable in engine.environment)
        ),
        "kept": {flag.name: flag.value for flag in engine.flags if flag.name not in NAMES.values()},
        "axes": {axis: list(values) for axis, values in target.space.axes.items()},
        "start": asdict(target.space.start),
    }


def _digest(items: Iterable[tuple[object, ...]]) -> str:
    found = sha256()
    for item in items:
        found.update(f"{item!r}\n".encode())
    return found.hexdigest()
