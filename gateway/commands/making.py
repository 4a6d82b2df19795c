"""How `forebay ctl` and `forebay keys` make a change: plan it, say what it does, make it."""

from collections.abc import Callable
from dataclasses import dataclass

import typer
from redis.asyncio import Redis

from gateway.commands.shared import author, traffic_of
from gateway.commands.telling import tell_changes
from gateway.control import desk
from gateway.control.desk import Plan, Refused, Situation
from gateway.control.impact import impact
from gateway.control.overlay import Rejection
from gateway.control.versions import Stamp


@dataclass(frozen=True, slots=True)
class Asked:
    """How the change is to be made. `version`: only if that is still the last one."""

    gateway: str
    dry_run: bool = False
    version: int | None = None
    note: str = ""
    name: str | None = None


async def make(redis: Redis, planned: Callable[[Situation], Plan], asked: Asked) -> None:
    """Raises Refused when the change is not valid, or somebody was faster."""
    situation = await desk.look(redis)
    version = situation.version.number
    if asked.version not in (None, version):
        raise Refused(f"the last version is {version}, not {asked.version}: look again")
    plan = planned(situation)
    tell_changes(plan.changes)
    if asked.dry_run:
        _tell_impact(plan, asked.gateway)
    elif plan.edits:
        stamp = Stamp(
            author(asked.name), asked.note, accepted=situation.version.state, version=version
        )
        number = await desk.carry_out(redis, plan, stamp)
        typer.echo(f"version {number}")


def _tell_impact(plan: Plan, gateway: str) -> None:
    try:
        before = plan.situation.effective()
    except Rejection as error:
        typer.echo(f"what is in force is not valid with this file: {error}")
        return
    traffic = traffic_of(gateway)
    if traffic is None:
        typer.echo(f"no gateway answers at {gateway}: its counts are taken to be 0 (--gateway)")
    for sentence in impact(before, plan.after, traffic or {}):
        typer.echo(f"would: {sentence}")
    typer.echo("nothing was changed")
