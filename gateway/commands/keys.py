"""`forebay keys`: API keys made, listed and revoked. A secret is printed once and kept nowhere."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gateway.commands.making import Asked, make
from gateway.commands.shared import (
    LOCAL_GATEWAY,
    LOCAL_REDIS,
    GatewayOption,
    NameOption,
    RedisOption,
    with_redis,
)
from gateway.control import desk
from gateway.control.desk import Plan, Refused, Situation
from gateway.tenancy.keys import new_key

keys = typer.Typer(no_args_is_help=True, help="API keys of tenants.")


@keys.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Whose key it is; made if there is none yet.")],
    redis: RedisOption = LOCAL_REDIS,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[float | None, typer.Option(help="Refuse it after so many days.")] = None,
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
        if not situation.effective().keys:
            typer.echo("it is the first key: without one nobody is served any more", err=True)
        return desk.change(situation, f"key:{key.name}", fields)

    asked = Asked(LOCAL_GATEWAY, note="new key", name=name)
    with_redis(redis, lambda client: make(client, planned, asked))
    typer.echo(key.secret)


@keys.command("list")
def list_(
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """List the keys in force by name; none of them can be read back."""
    situation = with_redis(redis, desk.look)
    for name, key in sorted(situation.effective().keys.items()):
        times = f"created {key.created or '?'}, expires {key.expires or 'never'}"
        typer.echo(f"{name}  tenant {key.tenant}  {times}  {key.note}".rstrip())


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
