"""`forebay plan`: how `vllm serve` should be started for each class, and why.

The rules are `backends.plans.rules`; here they get their facts: the classes as configured, recorded
traffic, and whether the fast tokenizer engine was proved for this model.
"""

import asyncio
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from backends.plans import file, render
from backends.plans.model import Engine, Plan
from backends.plans.rules import Demand, Hardware, environment_for, flags_for
from backends.plans.shapes import Shape, assumed, read_lengths, shapes_of
from gateway.config import ClassConfig, Config, read_file
from gateway.settings import default_cache_dir
from tokenizer_pool.artifact import read_artifact
from tokenizer_pool.errors import TokenizerUnavailable
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import TokenizerSource

UNNAMED = "MODEL"
LAST_PORT = 65_535
_SIZE = re.compile(r"(?:^|[^0-9a-z.])(\d+(?:\.\d+)?)b(?:$|[^a-z0-9])", re.IGNORECASE)
_TOKENIZER_LIMIT = 120.0


class Format(StrEnum):
    """What is printed."""

    FLAGS = "flags"
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    model: str
    hardware: Hardware
    engines: dict[str, int]
    classes: dict[str, ClassConfig]
    lengths: list[int] | None
    fastokens: bool | None
    peak: bool
    port: int


def plan(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(help="A size (13b), or what vLLM loads: a directory or hub id."),
    ] = None,
    gpu_memory: Annotated[float | None, typer.Option(help="GB of one GPU.", min=1)] = None,
    service_class: Annotated[
        list[str] | None,
        typer.Option("--class", help="A class; CLASS=2 for two engines of it. Repeatable."),
    ] = None,
    made_before: Annotated[
        Path | None,
        typer.Option("--from", help="No rules: print this plan file, as `forebay tune` writes it."),
    ] = None,
    size: Annotated[
        float | None, typer.Option(help="Billions of parameters, when MODEL doesn't say.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of one engine (tensor parallel).", min=1)] = 1,
    traffic: Annotated[
        Path | None,
        typer.Option(help="A request log, or a trace of Azure or Mooncake: real lengths."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The gateway's file, for its classes.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Prove the fast tokenizer engine for this directory or id.")
    ] = None,
    prefill_rate: Annotated[
        float | None, typer.Option(help="Prompt tokens/s of one engine, as measured.", min=1)
    ] = None,
    peak: Annotated[bool, typer.Option(help="Keep the reserves for announced peak hours.")] = False,
    port: Annotated[
        int, typer.Option(help="The first engine's port.", min=1, max=LAST_PORT)
    ] = 8001,
    output: Annotated[
        Format, typer.Option("--format", help="plan is the file that `forebay up` takes.")
    ] = Format.FLAGS,
) -> None:
    """Print, for each class, the flags of `vllm serve` that follow from the rules, with reasons."""
    try:
        if made_before is not None:
            _refuse_ignored(context)
            made = file.read(made_before)
        elif model is None or gpu_memory is None or not service_class:
            raise ValueError("say --model, --gpu-memory and --class, or --from FILE")
        else:
            wish = Wish(
                model=model if _SIZE.fullmatch(model) is None else UNNAMED,
                hardware=Hardware(_size(model, size), gpu_memory, gpus, prefill_rate),
                engines=_engines(service_class),
                classes=dict(_classes(config)),
                lengths=read_lengths(traffic) if traffic else None,
                fastokens=_proved(tokenizer) if tokenizer else None,
                peak=peak,
                port=port,
            )
            made = make(wish)
    except (ValueError, OSError, TokenizerUnavailable) as error:
        _give_up(str(error))
    shown = file.write if output is Format.PLAN else render.FORMATS[output.value]
    typer.echo(shown(made), nl=False)


def make(wish: Wish) -> Plan:
    """The plan that the rules give for a wish. Raises ValueError."""
    bounds = {name: spec.max_prompt_tokens for name, spec in wish.classes.items()}
    if unknown := wish.engines.keys() - bounds.keys():
        raise ValueError(f"no class {', '.join(sorted(unknown))}; there are {', '.join(bounds)}")
    seen = {} if wish.lengths is None else shapes_of(wish.lengths, bounds)
    last = wish.port + sum(wish.engines.values()) - 1
    if last > LAST_PORT:
        raise ValueError(
            f"the engines need ports {wish.port} to {last}, and {LAST_PORT} is the last one: use "
            f"--port {LAST_PORT - (last - wish.port)} or less"
        )
    engines: list[Engine] = []
    for name, count in wish.engines.items():
        shape = seen.get(name) or assumed(bounds[name])
        demand = Demand(
            name, shape, wish.classes[name].ttft_target, fastokens=wish.fastokens, peak=wish.peak
        )
        engines += [_engine(wish, demand, number, len(engines) + number) for number in range(count)]
    return Plan(tuple(engines), notes=tuple(_notes(wish, seen)))


def size_of(model: str) -> float:
    """Billions of parameters, as the model's name says it. Raises ValueError."""
    found = _SIZE.search(model)
    if found is None:
        raise ValueError(f"how large is {model}? Say it: --size BILLIONS")
    return float(found[1])


def _size(model: str, given: float | None) -> float:
    """Billions of parameters, as said or as the name says. Raises ValueError."""
    size = size_of(model) if given is None else given
    if not 0 < size < float("inf"):
        raise ValueError(
            f"a model of {size:g} billion parameters? Say more than 0: --size BILLIONS"
        )
    return size


def _refuse_ignored(context: typer.Context) -> None:
    """A plan file says all that the rules would: what else is asked for would mean nothing. Raises
    ValueError."""
    ignored = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in ("made_before", "output") and _typed(context, parameter.name or "")
    ]
    if ignored:
        raise ValueError(
            f"--from FILE takes --format only: leave out {', '.join(ignored)}, or change the file"
        )


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _engine(wish: Wish, demand: Demand, number: int, place: int) -> Engine:
    each = wish.hardware.gpus
    return Engine(
        name=f"{demand.service_class}-{number}",
        model=wish.model,
        classes=(demand.service_class,),
        port=wish.port + place,
        gpus=tuple(range(place * each, (place + 1) * each)),
        flags=flags_for(wish.hardware, demand),
        environment=environment_for(demand),
    )


def _notes(wish: Wish, seen: dict[str, Shape]) -> list[str]:
    notes = []
    if wish.model == UNNAMED:
        notes.append(f"put the model's directory or hub id in the place of {UNNAMED}")
    if wish.lengths is not None and (missing := wish.engines.keys() - seen.keys()):
        notes.append(f"the traffic has no request of class {', '.join(sorted(missing))}: assumed")
    if wish.fastokens is None:
        notes.append("VLLM_USE_FASTOKENS is left out: give --tokenizer to have it proved")
    elif not wish.fastokens:
        notes.append("VLLM_USE_FASTOKENS is left out: fastokens differs from the reference here")
    return notes


def _engines(options: list[str]) -> dict[str, int]:
    engines: dict[str, int] = {}
    for option in options:
        name, _, count = option.partition("=")
        if count and not (count.isdecimal() and int(count)):
            raise ValueError(f"--class takes CLASS or CLASS=ENGINES, not {option!r}")
        engines[name] = engines.get(name, 0) + int(count or 1)
    return engines


def _classes(config: Path | None) -> dict[str, ClassConfig]:
    """The classes of the gateway's file, or those that it has without one."""
    document = read_file(config) if config else {}
    document.setdefault("backends", {"none": {"url": "http://127.0.0.1"}})
    return dict(Config.model_validate(document).classes)


def _proved(tokenizer: str) -> bool:
    """Whether the fast engine was proved for it; the proof is made once, and kept."""
    source = TokenizerSource("planned", tokenizer)
    cache = default_cache_dir() / "tokenizers"
    path = asyncio.run(artifact_path(source, cache, limit=_TOKENIZER_LIMIT))
    return read_artifact(path).fast_encoder


def _give_up(message: str) -> None:
    typer.secho(f"forebay plan: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)
