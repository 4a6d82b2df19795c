"""Versions of the settings in Redis: who changed what, when, and how to get back.

    forebay:version    number, digest and state of the last accepted settings
    forebay:history    a stream with one entry per version, the newest KEPT of them

One script writes both, together with the keys themselves when `forebay ctl` changes them, and only
if nobody has changed anything since its caller looked. It looks first whether both can be written:
no change is without its version. Whether settings are valid is known to the caller.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.control.keys import HISTORY, VERSION
from gateway.control.overlay import Document, Hashes, digest
from gateway.control.store import BrokenKey, printable

KEPT = 1000
_DIGITS = 12
"""Of a version's number, at most: Lua counts in floating point."""
_NUMBER = re.compile(rf"[0-9]{{1,{_DIGITS}}}")

_COMMIT = """
redis.replicate_commands()
local expected_version, expected_digest, new_digest = ARGV[1], ARGV[2], ARGV[3]
local function holds(key, wanted)
  local kind = redis.call('TYPE', key).ok
  return kind == 'none' or kind == wanted
end
if not holds(KEYS[1], 'hash') then return {'broken', KEYS[1], 'is not a hash'} end
if not holds(KEYS[2], 'stream') then return {'broken', KEYS[2], 'is not a stream'} end
local known = redis.call('HMGET', KEYS[1], 'number', 'digest')
local number = known[1] or '0'
if #number > %(digits)d or not string.match(number, '^%%d+$') then
  return {'broken', KEYS[1], 'its number is not one of ours'}
end
local function item(text) return #text .. ':' .. text end
local parts = {}
for i = 3, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind == 'hash' then
    local flat, names, fields = redis.call('HGETALL', KEYS[i]), {}, {}
    for j = 1, #flat, 2 do
      names[#names + 1] = flat[j]
      fields[flat[j]] = flat[j + 1]
    end
    table.sort(names)
    parts[#parts + 1] = item(KEYS[i])
    for _, name in ipairs(names) do parts[#parts + 1] = item(name) .. item(fields[name]) end
    parts[#parts + 1] = ';'
  elseif kind ~= 'none' then
    parts[#parts + 1] = item(KEYS[i]) .. '!'
  end
end
if redis.sha1hex(table.concat(parts)) ~= expected_digest then return {'moved', number} end
if expected_version ~= '' and expected_version ~= number then return {'conflict', number} end
local status = 'known'
if known[2] ~= new_digest then
  status = 'new'
  number = tostring(math.max(tonumber(number), tonumber(ARGV[9])) + 1)
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', '%(kept)d', '*', 'version', number, 'by', ARGV[4],
    'note', ARGV[5], 'time', ARGV[6], 'diff', ARGV[7])
  redis.call('HSET', KEYS[1], 'number', number, 'digest', new_digest, 'state', ARGV[8],
    'by', ARGV[4], 'time', ARGV[6])
end
for i = 10, #ARGV, 3 do
  local key, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if value == '' then redis.call('HDEL', key, name) else redis.call('HSET', key, name, value) end
end
return {status, number}
"""


class Change(NamedTuple):
    """One field of one key; None: the field is not there."""

    key: str
    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One version as the history has it."""

    version: int
    time: str
    by: str
    note: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The last accepted settings."""

    number: int = 0
    digest: str = ""
    state: Document = field(default_factory=dict)


class Moved(Exception):
    """Somebody changed the keys or made a version since the caller looked. Nothing was done."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the settings have changed meanwhile, to version {number}; look again")
        self.number = number


def difference(before: Hashes, after: Hashes) -> tuple[Change, ...]:
    """Every field that differs, in the order of keys and fields."""
    changes = []
    for key in sorted({*before, *after}):
        old, new = before.get(key) or {}, after.get(key) or {}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                changes.append(Change(key, name, old.get(name), new.get(name)))
    return tuple(changes)


def changed(state: Hashes, changes: Iterable[Change]) -> dict[str, Mapping[str, str] | None]:
    """The state with the changes made. A key without fields is gone, as in Redis."""
    made: dict[str, Mapping[str, str] | None] = dict(state)
    for change in changes:
        fields = dict(made.get(change.key) or {})
        if change.after:
            fields[change.field] = change.after
        else:
            fields.pop(change.field, None)
        made[change.key] = fields
    return {key: fields for key, fields in made.items() if fields is None or fields}


async def current(redis: Redis) -> Version | None:
    """The last accepted settings, or None when this Redis has never had any. Raises BrokenKey."""
    try:
        number, word, state = await redis.hmget(VERSION, ["number", "digest", "state"])
    except ResponseError as error:
        raise _named(error, VERSION, "hash") from error
    if number is None:
        return None
    if not _NUMBER.fullmatch(str(number)):
        raise BrokenKey(VERSION, "its number is not one of ours")
    try:
        return Version(int(number), str(word or ""), document(orjson.loads(state or "{}")))
    except ValueError as error:
        raise BrokenKey(VERSION, f"its state cannot be read, {error}") from error


def document(state: Any) -> Document:
    """The state, if it is one. Raises ValueError."""
    if not isinstance(state, dict) or not all(
        isinstance(fields, dict) and all(isinstance(text, str) for text in fields.values())
        for fields in state.values()
    ):
        raise ValueError("it is not a mapping of hashes")
    return state


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a version says of itself. `accepted` is the last accepted state, which its diff is
    against; `version` the number that must still be the last one; its own will be greater than
    that and than `after`."""

    by: str
    note: str = ""
    accepted: Hashes = field(default_factory=dict)
    version: int | None = None
    after: int = 0


async def commit(redis: Redis, seen: Hashes, changes: Sequence[Change], stamp: Stamp) -> int:
    """Make the changes and a version of the result; returns its number.

    `seen` is what the caller read of every key concerned. Without changes, what was seen itself
    becomes a version, unless it is one. Raises Moved, and BrokenKey; then nothing was done.
    """
    result = changed(seen, changes)
    keys = sorted({*seen, *result})
    edits = [text for c in changes for text in (c.key, c.field, c.after or "")]
    script = _COMMIT % {"kept": KEPT, "digits": _DIGITS}
    status, number, *why = await redis.register_script(script)(
        keys=[VERSION, HISTORY, *keys],
        args=[
            "" if stamp.version is None else str(stamp.version),
            digest(seen),
            digest(result),
            stamp.by,
            stamp.note,
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            orjson.dumps([list(change) for change in difference(stamp.accepted, result)]),
            orjson.dumps({key: fields for key, fields in result.items() if fields}),
            str(stamp.after),
            *edits,
        ],
    )
    if status == "broken":
        raise BrokenKey(number, *why)
    if status in ("moved", "conflict"):
        raise Moved(int(number))
    return int(number)


async def history(redis: Redis, count: int = KEPT) -> list[Entry]:
    """The newest versions, newest first. Raises BrokenKey."""
    try:
        entries: Any = await redis.xrevrange(HISTORY, count=count)
    except ResponseError as error:
        raise _named(error, HISTORY, "stream") from error
    return [entry_of(fields) for _, fields in entries]


def entry_of(fields: Mapping[str, str]) -> Entry:
    """An entry of the stream; what somebody else put there is shown as it is."""
    try:
        changes = tuple(Change(*change) for change in orjson.loads(fields.get("diff", "[]")))
        version = int(fields.get("version", ""))
    except (ValueError, TypeError):
        return Entry(0, printable(fields.get("time", "")), "?", f"not ours: {dict(fields)}", ())
    time, by, note = (printable(fields.get(name, "")) for name in ("time", "by", "note"))
    return Entry(version, time, by or "?", note, changes)


def _named(error: ResponseError, key: str, kind: str) -> ResponseError | BrokenKey:
    """Redis says that a type is wrong, but not whose."""
    return BrokenKey(key, f"is not a {kind}") if str(error).startswith("WRONGTYPE") else error


def back_to(version: int, state: Document, entries: Iterable[Entry]) -> Document:
    """The state as it was at `version`, from the entries since then (newest first).

    Raises ValueError when the history does not reach back so far.
    """
    undone: Hashes = state
    reached: int | None = None
    for entry in entries:
        if entry.version == version:
            reached = version
            break
        if entry.version > version:
            undone = changed(
                undone, (Change(c.key, c.field, c.after, c.before) for c in entry.changes)
            )
            reached = entry.version - 1
    if reached != version:
        raise ValueError(f"the history does not reach back to version {version}")
    return {key: fields for key, fields in undone.items() if fields}
