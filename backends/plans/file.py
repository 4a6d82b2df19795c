"""A plan as a file: YAML that a person reads and changes, and that `forebay up` starts from.

Only the flags' values count when it is read. Their reasons stand beside them as comments, which are
read back, too (`comments`).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backends.plans import comments
from backends.plans.model import Engine, Flag, Plan, Value, Variable

_Reasoned = TypeVar("_Reasoned", Flag, Variable)
_NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$"
_OWN_FLAGS = frozenset(("host", "port", "uds"))


class BadPlan(ValueError):
    """The file is no plan; the message says where and why."""


class _EngineFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    port: Annotated[int, Field(ge=1, le=65_535)]
    classes: tuple[Annotated[str, Field(pattern=_NAME)], ...] = ()
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    flags: dict[str, bool | int | float | str] = {}
    environment: dict[str, str] = {}


class _PlanFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: Annotated[tuple[str, ...], Field(min_length=1)] = ("vllm", "serve")
    engines: Annotated[dict[Annotated[str, Field(pattern=_NAME)], _EngineFile], Field(min_length=1)]


def write(plan: Plan) -> str:
    """The plan with its reasons, as `read` takes it."""
    lines = [*(f"# {note}" for note in plan.notes), f"command: {_text(list(plan.command))}"]
    lines.append("engines:")
    for engine in plan.engines:
        lines += [
            f"  {engine.name}:",
            f"    model: {_text(engine.model)}",
            f"    port: {engine.port}",
            f"    classes: {_text(list(engine.classes))}",
            f"    gpus: {_text(list(engine.gpus))}",
        ]
        lines += ["    flags:"] if engine.flags else []
        lines += [f"      {f.name}: {_text(f.value)}  # {f.reason}" for f in engine.flags]
        lines += ["    environment:"] if engine.environment else []
        lines += [f"      {v.name}: {_text(v.value)}  # {v.reason}" for v in engine.environment]
    return "\n".join(lines) + "\n"


def read(path: Path) -> Plan:
    """Raises BadPlan."""
    try:
        text = path.read_text()
        return _with_comments(parse(yaml.safe_load(text)), text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadPlan(f"cannot read {path}: {error}") from error
    except BadPlan as error:
        raise BadPlan(f"{path}: {error}") from error


def parse(document: Any) -> Plan:
    """A plan from plain values. Raises BadPlan."""
    try:
        file = _PlanFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the plan"
        raise BadPlan(f"{place}: {first['msg']}") from error
    engines = tuple(_engine(name, found) for name, found in file.engines.items())
    ports = [engine.port for engine in engines]
    if len(set(ports)) != len(ports):
        raise BadPlan("two engines have the same port")
    return Plan(engines, file.command)


def _engine(name: str, found: _EngineFile) -> Engine:
    flags = {_flag(name): value for name, value in found.flags.items()}
    if own := _OWN_FLAGS & flags.keys():
        raise BadPlan(f"engines.{name}.flags: {', '.join(sorted(own))} is decided by the plan")
    return Engine(
        name=name,
        model=found.model,
        classes=found.classes,
        port=found.port,
        gpus=found.gpus,
        flags=tuple(Flag(flag, value, "as the plan says") for flag, value in flags.items()),
        environment=tuple(
            Variable(key, value, "as the plan says") for key, value in found.environment.items()
        ),
    )


def _with_comments(plan: Plan, text: str) -> Plan:
    """The plan with the reasons and notes that stand beside it, where there are any."""
    said = {
        (at, part, _flag(name) if part == "flags" else name): told
        for (at, part, name), told in comments.beside(text).items()
    }

    def of(engine: Engine, part: str, one: _Reasoned) -> _Reasoned:
        return replace(one, reason=said.get((engine.name, part, one.name), one.reason))

    engines = tuple(
        replace(
            engine,
            flags=tuple(of(engine, "flags", flag) for flag in engine.flags),
            environment=tuple(of(engine, "environment", each) for each in engine.environment),
        )
        for engine in plan.engines
    )
    return replace(plan, engines=engines, notes=comments.above(text))


def _flag(name: str) -> str:
    """As `vllm serve` documents it."""
    return name.lstrip("-").replace("_", "-")


def _text(value: Value | list[str] | list[int]) -> str:
    return json.dumps(value)
