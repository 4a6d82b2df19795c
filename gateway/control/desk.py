"""The operator's side of the keys: look at them, plan a change, make it. What `forebay ctl` does.

A change is validated as the gateways will, and made only if nobody has changed anything meanwhile.
Not here: what the change would do to traffic (`impact`), and how things are printed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.config import Config
from gateway.control import reader, versions
from gateway.control.keys import REJECTED, applies, full, place, stray
from gateway.control.overlay import Hashes, Rejection, overlay
from gateway.control.published import KEY, published
from gateway.control.versions import Change, Moved, Stamp, Version, changed, difference


class Refused(Exception):
    """The change cannot be made; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What Redis holds at one moment. `version` is the last accepted one; `hashes` may differ from
    its state, when somebody has typed something that the gateways refuse."""

    file: Config
    hashes: Hashes
    version: Version
    rejected: Mapping[str, str]

    def effective(self) -> Config:
        """What is in force: the last accepted settings. Raises Rejection if they are not valid
        with the file that the gateway has now."""
        return overlay(self.file, self.version.state)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is valid. `edits` lead from what Redis holds to `after`; `changes` are told."""

    situation: Situation
    edits: tuple[Change, ...]
    changes: tuple[Change, ...]
    after: Config


async def look(redis: Redis) -> Situation:
    """Raises Refused when no gateway has used this Redis."""
    try:
        file = await published(redis)
    except ValueError as error:
        raise Refused(
            f"{KEY} is not what a gateway of this version writes: restart the gateways, or use "
            f"their version of forebay ({error})"
        ) from error
    if file is None:
        raise Refused("no gateway has used this Redis yet: check --redis, or start one with it")
    names = [name for name in await reader.scan(redis) if applies(name, file)]
    hashes = await reader.read(redis, names)
    version = await versions.current(redis) or Version()
    rejected = await reader.read(redis, [REJECTED])  # of another type: the gateways replace it
    return Situation(file, hashes, version, rejected[REJECTED] or {})


def change(situation: Situation, key: str, fields: Mapping[str, str]) -> Plan:
    """Plan to set the fields of one key; an empty value takes the field away. Raises Refused."""
    key = full(key)
    if place(key) is None or not applies(key, situation.file):
        raise Refused(stray(key, situation.file).removeprefix("ignored: "))
    now = situation.hashes.get(key, {})
    if now is None:
        raise Refused(f"{key} is not a hash: DEL {key}, then try again")
    edits = [Change(key, name, now.get(name), text or None) for name, text in fields.items()]
    return _plan(situation, edits)


def roll_back(situation: Situation, version: int, entries: Iterable[versions.Entry]) -> Plan:
    """Plan to have the settings of an earlier version again. Raises Refused."""
    try:
        target = versions.back_to(version, situation.version.state, entries)
    except ValueError as error:
        raise Refused(str(error)) from error
    return _plan(situation, difference(situation.hashes, target))


async def carry_out(redis: Redis, plan: Plan, stamp: Stamp) -> int:
    """Make the planned change; returns its version. Raises Refused if somebody was faster."""
    try:
        return await versions.commit(redis, plan.situation.hashes, plan.edits, stamp)
    except Moved as moved:
        raise Refused(str(moved)) from moved


def _plan(situation: Situation, edits: Iterable[Change]) -> Plan:
    edits = tuple(edit for edit in edits if edit.before != edit.after)
    hashes = changed(situation.hashes, edits)
    try:
        after = overlay(situation.file, hashes)
    except Rejection as error:
        raise Refused(str(error)) from error
    return Plan(situation, edits, difference(situation.version.state, hashes), after)
