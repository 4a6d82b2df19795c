"""`forebay ctl`: look at the settings of a running fleet, change them, and go back.

What is done is in `gateway.control.desk`; here it gets its words. Every change names its author,
is validated as a whole, and is made only if nobody was faster.
"""

import asyncio
from typing import Annotated

import typer
from redis.asyncio import Redis

from gateway.commands.canary import canary
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
from gateway.commands.telling import (
    tell_changes,
    tell_entry,
    tell_key,
    tell_refusals,
    tell_stored,
    watch_keys,
)
from gateway.control import desk, reference, versions
from gateway.control.desk import Refused
from gateway.control.keys import KINDS, PREFIX, full, place
from gateway.control.overlay import Rejection
from gateway.control.versions import Change

ctl = typer.Typer(no_args_is_help=True, help="Look at and change a running fleet's settings.")
ctl.add_typer(canary, name="canary")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")]
Note = Annotated[str, typer.Option(help="Why, for the history.")]
OnlyIf = Annotated[
    int | None, typer.Option("--version", help="Only if this is still the last version.")
]


@ctl.command()
def get(
    key: Annotated[str | None, typer.Argument(help="A key, as class:short; default: all.")] = None,
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """Print what is in force, and where each value comes from."""

    async def work(client: Redis) -> None:
        situation = await desk.look(client)
        typer.echo(f"version {situation.version.number}")
        try:
            situation.effective()
        except Rejection:
            for name in sorted(situation.hashes) if key is None else [full(key)]:
                tell_stored(situation, name)
            raise
        finally:
            tell_refusals(situation.rejected)
        for name in sorted(situation.version.state) if key is None else [full(key)]:
            tell_key(situation, name)

    with_redis(redis, work)


@ctl.command("set")
def set_(
    key: Annotated[str, typer.Argument(help="A key, as class:short.")],
    fields: Annotated[list[str], typer.Argument(help="FIELD=VALUE; without VALUE: as in the file")],
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    dry_run: DryRun = False,
    version: OnlyIf = None,
    note: Note = "",
    name: NameOption = None,
) -> None:
    """Change fields of one key, all together or not at all."""
    given = dict(map(_pair, fields))
    asked = Asked(gateway, dry_run=dry_run, version=version, note=note, name=name)
    with_redis(redis, lambda r: make(r, lambda now: desk.change(now, key, given), asked))


@ctl.command()
def diff(
    first: Annotated[int | None, typer.Argument(help="A version; default: the file.")] = None,
    second: Annotated[int | None, typer.Argument(help="Another; default: the last one.")] = None,
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """Print what differs between the file and the last version, or between two versions."""

    async def work(client: Redis) -> tuple[Change, ...]:
        situation, entries = await desk.look(client), await versions.history(client)
        state = situation.version.state
        try:
            old = versions.back_to(first, state, entries) if first is not None else {}
            new = versions.back_to(second, state, entries) if second is not None else state
        except ValueError as error:
            raise Refused(str(error)) from error
        return versions.difference(old, new)

    tell_changes(with_redis(redis, work))


@ctl.command()
def history(
    count: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """Print who changed what, and when."""
    for entry in with_redis(redis, lambda client: versions.history(client, count)):
        tell_entry(entry)


@ctl.command()
def rollback(
    version: Annotated[int, typer.Argument(help="The version to have again.")],
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    dry_run: DryRun = False,
    note: Note = "",
    name: NameOption = None,
) -> None:
    """Have the settings of an earlier version again, as a new version."""
    asked = Asked(gateway, dry_run=dry_run, note=note or f"back to version {version}", name=name)

    async def work(client: Redis) -> None:
        entries = await versions.history(client)
        await make(client, lambda now: desk.roll_back(now, version, entries), asked)

    with_redis(redis, work)


@ctl.command()
def watch(
    redis: RedisOption = LOCAL_REDIS,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
) -> None:
    """Print versions and refusals as they come, until Ctrl-C."""

    async def work(client: Redis) -> None:
        try:
            async with asyncio.timeout(seconds):
                await watch_keys(client)
        except TimeoutError:
            return

    try:
        with_redis(redis, work)
    except KeyboardInterrupt:
        typer.echo()


@ctl.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key, as class:short, or a kind, as class.")],
    redis: RedisOption = LOCAL_REDIS,
) -> None:
    """Say what the fields of a key mean, what they may be, and what they are now."""
    word = key.removeprefix(PREFIX).partition(":")[0]
    if word not in KINDS:
        give_up(f"there are no keys {PREFIX}{word}; there are: {', '.join(KINDS)}")
    for row in reference.rows(word):
        typer.echo(f"{row.field}: {row.effect}")
        typer.echo(f"    {row.type}, {row.range}; default {row.default}")
    if place(full(key)) is not None:
        typer.echo()

        async def work(client: Redis) -> None:
            tell_key(await desk.look(client), full(key))

        with_redis(redis, work)


@ctl.command()
def drain(
    backend: Annotated[str, typer.Argument(help="A backend's name.")],
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    dry_run: DryRun = False,
    name: NameOption = None,
) -> None:
    """Give a backend nothing new, let its streams finish, and leave it alone."""
    _drain(redis, backend, "on", Asked(gateway, dry_run=dry_run, note="drain", name=name))


@ctl.command()
def undrain(
    backend: Annotated[str, typer.Argument(help="A backend's name.")],
    redis: RedisOption = LOCAL_REDIS,
    gateway: GatewayOption = LOCAL_GATEWAY,
    dry_run: DryRun = False,
    name: NameOption = None,
) -> None:
    """Take a drained backend back: it is proved and warmed first."""
    _drain(redis, backend, "", Asked(gateway, dry_run=dry_run, note="undrain", name=name))


def _drain(redis: str, backend: str, value: str, asked: Asked) -> None:
    key, fields = f"backend:{backend}", {"drain": value}
    with_redis(redis, lambda r: make(r, lambda now: desk.change(now, key, fields), asked))


def _pair(option: str) -> tuple[str, str]:
    field, separator, value = option.partition("=")
    if not (field and separator):
        give_up(f"write FIELD=VALUE, or FIELD= to have the file's value again; not {option!r}")
    return field, value
