"""`forebay keys`: API keys made, listed and revoked. A secret is printed once and kept nowhere."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from redis.asyncio import Redis

from gateway.commands.making import Asked, make
from gateway.commands.shared import (
    LOCAL_GATEWAY,
    LOCAL_REDIS,
    GatewayOption,
    NameOption,
    RedisOption,
    with_redis,
)
from gateway.commands.telling import tell_stored
from gateway.control import desk
from gateway.control.desk import Plan, Refused, Situation
from gateway.control.overlay import Rejection
from gateway.tenancy.config import KeyConfig
from gateway.tenancy.keys import new_key

keys = typer.Typer(no_args_is_help=True, help="API keys of tenants.")


SHORTEST, LONGEST = 1 / 1440, 36_500.0
"""Days that a key may be for: a minute, and a hundred years."""


def _days(value: float | None) -> float | None:
    if value is not None and not SHORTEST <= value <= LONGEST:  # nan is neither
        raise typer.BadParameter(f"days from now, at least a minute (0.0007), at most {LONGEST:g}")
    return value


@keys.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Whose key it is; made if there is none yet.")],
    redis: RedisOption = LOCAL_REDIS,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[
        float | None, typer.Option(help="Refuse it after so many days.", callback=_days)
    ] = None,
    name: NameOption = None,
) -> None:
    """Make a key and print it: the only time that it can be seen."""
    key, now = new_key(), datetime.now(UTC).replace(microsecond=0)
    fields = {"tenant": tenant, "sha256": key.sha256, "created": now.isoformat()}
    if note:
        fields["note"] = note
    if days is not None:
        fields["expires"] = (now + timedelta(days=days)).isoformat(timespec="seconds")

    def planned(situation: Situation) -> Plan:
        plan = desk.change(situation, f"key:{key.name}", fields)
        if not situation.effective().keys:
            typer.echo("it is the first key: without one nobody is served any more", err=True)
        return plan

    asked = Asked(LOCAL_GATEWAY, note="new key", name=name)
    with_redis(redis, lambda client: make(client, planned, asked))
    typer.echo(key.secret)


@keys.command("list")
def list_(
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """List the keys in force by name; none of them can be read back."""

    async def work(client: Redis) -> None:
        situation = await desk.look(client)
        try:
            known = situation.effective().keys
        except Rejection:
            for stored in sorted(situation.hashes):
                if stored.startswith("forebay:key:"):
                    tell_stored(situation, stored)
            raise
        for name, key in sorted(known.items()):
            typer.echo(f"{name}  tenant {key.tenant}  {_times(key)}  {key.note}".rstrip())

    with_redis(redis, work)


def _times(key: KeyConfig) -> str:
    over = key.expires is not None and key.expires <= datetime.now(UTC)
    return (
        f"created {key.created or '?'}, {'EXPIRED' if over else 'expires'} {key.expires or 'never'}"
    )


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The key's name, as `list` has it.")],
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    name: NameOption = None,
) -> None:
    """Refuse a key from now on; who did that stays in the history."""

    def planned(situation: Situation) -> Plan:
        full = f"forebay:key:{key}"
        fields = situation.hashes.get(full)
        if not fields:
            where = "it is in the file" if key in situation.file.keys else "see `forebay keys list`"
            raise Refused(f"there is no key {key} in Redis: {where}")
        return desk.change(situation, full, dict.fromkeys(fields, ""))

    with_redis(redis, lambda r: make(r, planned, Asked(gateway, note="revoked", name=name)))
