"""`forebay ctl canary`: begin, watch, hold, end the move of a model to other backends."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from redis.asyncio import Redis

from gateway.canary import shared
from gateway.canary.config import CanaryConfig
from gateway.canary.progress import Progress, waits_for
from gateway.canary.sketch import Group, edge
from gateway.commands.making import Asked, make
from gateway.commands.shared import (
    LOCAL_GATEWAY,
    LOCAL_REDIS,
    GatewayOption,
    NameOption,
    RedisOption,
    give_up,
    with_redis,
)
from gateway.commands.telling import tell_stored
from gateway.control import desk
from gateway.control.desk import Plan, Refused, Situation
from gateway.control.overlay import Rejection

canary = typer.Typer(no_args_is_help=True, help="Move a model's traffic to other backends.")

Model = Annotated[str, typer.Argument(help="The model's name.")]


@canary.command()
def start(
    model: Model,
    old: Annotated[str, typer.Option(help="Backends of the old group, with commas.")],
    new: Annotated[str, typer.Option(help="Backends of the new group, with commas.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE; see `ctl explain canary`.")
    ] = None,
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Begin at the first step, whatever was before."""
    fields = {"old": old, "new": new, "order": "run", "run": f"{time.time():.0f}"}
    for option in setting or []:
        field, separator, value = option.partition("=")
        if not separator:
            give_up(f"write --set FIELD=VALUE, not {option!r}")
        fields[field] = value
    _order(redis, model, fields, Asked(gateway, note="canary starts", name=name))


@canary.command()
def status(model: Model, redis: RedisOption = LOCAL_REDIS) -> None:
    """Print how far it is, what was seen, and what it waits for."""

    async def work(client: Redis) -> None:
        situation = await desk.look(client)
        try:
            spec = situation.effective().canaries.get(model)
        except Rejection:
            tell_stored(situation, f"forebay:canary:{model}")
            if (known := await shared.read(client, model)) is not None:
                typer.echo(f"{known.phase.value}: step {known.step + 1}, {known.reason}")
            raise
        if spec is None:
            raise Refused(f"there is no canary of {model}: `forebay ctl canary start {model} …`")
        progress = await shared.read(client, model)
        if progress is None:
            typer.echo("no gateway has taken it up yet")
            return
        groups = await shared.groups(client, model, progress)
        _tell(progress, spec, groups)

    with_redis(redis, work)


@canary.command()
def pause(
    model: Model,
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Stay at this step; `resume` goes on."""
    _order(redis, model, {"order": "pause"}, Asked(gateway, note="canary pauses", name=name))


@canary.command()
def resume(
    model: Model,
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Go on after a pause."""
    _order(redis, model, {"order": "run"}, Asked(gateway, note="canary goes on", name=name))


@canary.command()
def abort(
    model: Model,
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Send everything to the old group, now."""
    _order(redis, model, {"order": "abort"}, Asked(gateway, note="canary is aborted", name=name))


@canary.command()
def promote(
    model: Model,
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Send everything to the new group, now, unproved as it may be."""
    note = "canary is promoted by order"
    _order(redis, model, {"order": "promote"}, Asked(gateway, note=note, name=name))


def _order(redis: str, model: str, fields: Mapping[str, str], asked: Asked) -> None:
    key = f"forebay:canary:{model}"

    def planned(situation: Situation) -> Plan:
        if "old" not in fields and not situation.hashes.get(key):
            raise Refused(f"there is no canary of {model} in Redis")
        return desk.change(situation, key, fields)

    with_redis(redis, lambda client: make(client, planned, asked))


def _tell(progress: Progress, spec: CanaryConfig, groups: tuple[Group, Group]) -> None:
    typer.echo(f"{progress.phase.value}: {progress.share(spec):.0%} to {', '.join(spec.new)}")
    typer.echo(f"step {progress.step + 1} of {len(spec.steps)}: {progress.reason}")
    for name, group in zip(("old", "new"), groups, strict=True):
        typer.echo(f"{name}: {group.ended} requests ended, {group.errors} of them failed")
        for service_class, counts in sorted(group.ttft.items()):
            typer.echo(f"    {service_class}: TTFT {_quantiles(counts)} (of {counts.total()})")
    waiting = waits_for(progress, spec, groups, time.time())
    if progress.phase.value == "running":
        typer.echo(f"waits for: {waiting or 'the next look'}")


def _quantiles(counts: Any) -> str:
    """What was seen, for a person; the verdict uses bounds, not these."""
    total, seen, told = counts.total(), 0, []
    wanted = [0.5, 0.9, 0.99]
    for index in sorted(counts):
        seen += counts[index]
        while wanted and seen >= wanted[0] * total:
            told.append(f"p{wanted.pop(0) * 100:g} {edge(index + 1):.3f} s")
    return ", ".join(told)
