"""How the commands for operators print keys, changes, versions and refusals."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import typer
from pydantic import BaseModel
from redis.asyncio import Redis

from gateway.config import Config
from gateway.control import desk, reader
from gateway.control.desk import Situation
from gateway.control.keys import HISTORY, REJECTED, Place, applies, place, stray
from gateway.control.overlay import Rejection
from gateway.control.store import printable
from gateway.control.versions import Change, Entry, entry_of

_SECRET_FIELDS = frozenset(("sha256",))
POLL = 0.25


def tell_key(situation: Situation, key: str) -> None:
    """Each field of a key: its value in force, and whether it is Redis's or the file's. Raises
    Refused, and Rejection when that cannot be known: then what Redis holds is told."""
    found = place(key)
    if found is None or not applies(key, situation.file):
        raise desk.Refused(f"{key}: {stray(key, situation.file).removeprefix('ignored: ')}")
    try:
        effective = situation.effective()
    except Rejection:
        tell_stored(situation, key)
        raise
    in_redis = situation.version.state.get(key, {})
    entry = _entry(effective, found)
    typer.echo(key)
    if entry is None:
        typer.echo("    not there")
        return
    for field in type(entry).model_fields:
        if found.kind.knows(field):
            origin = "redis" if field in in_redis else "file or default"
            typer.echo(f"    {field} = {_text(getattr(entry, field))}    ({origin})")


def tell_stored(situation: Situation, key: str) -> None:
    """What Redis holds at a key, whether or not it is valid."""
    typer.echo(printable(key))
    for field, text in (situation.hashes.get(key) or {}).items():
        shown = f"{text[:8]}…" if field in _SECRET_FIELDS else text
        typer.echo(printable(f"    {field} = {shown}    (stored in redis)"))


def tell_changes(changes: Iterable[Change]) -> None:
    lines = [f"{c.key} {c.field}: {_value(c, c.before)} → {_value(c, c.after)}" for c in changes]
    typer.echo("\n".join(lines) if lines else "no difference")


def tell_entry(entry: Entry) -> None:
    note = f" ({entry.note})" if entry.note else ""
    typer.echo(f"version {entry.version}  {entry.time}  by {entry.by}{note}")
    for change in entry.changes:
        before, after = _value(change, change.before), _value(change, change.after)
        typer.echo(f"    {change.key} {change.field}: {before} → {after}")


def tell_refusals(rejected: Mapping[str, str]) -> None:
    for key, why in rejected.items():
        typer.secho(printable(f"refused: {key}: {why}"), fg=typer.colors.YELLOW)


async def watch_keys(redis: Redis) -> None:
    """Print versions and refusals as they come, until cancelled."""
    last = "$"
    told: Mapping[str, str] = {}
    while True:
        rejected = (await reader.read(redis, [REJECTED]))[REJECTED] or {}
        if rejected != told:
            told = rejected
            tell_refusals(rejected)
            if not rejected:
                typer.echo("nothing is refused any more")
        news: Any = await redis.xread({HISTORY: last}, block=int(POLL * 1000))
        for _, entries in news or []:
            for last, fields in entries:  # noqa: B007 - the last one read is where to go on
                tell_entry(entry_of(fields))


def _entry(config: Config, found: Place) -> BaseModel | None:
    section: Any = getattr(config, found.kind.section)
    return section.get(found.name) if found.kind.named else section  # type: ignore[no-any-return]


def _value(change: Change, value: str | None) -> str:
    if value is not None and change.field in _SECRET_FIELDS:
        return f"{value[:8]}…"
    return "as in the file" if value is None else value


def _text(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case Enum():
            return str(value.value)
        case tuple():
            return ", ".join(map(_text, value)) or "–"
        case Mapping():
            return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items()) or "–"
    return str(value)
