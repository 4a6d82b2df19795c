"""From what Redis holds to effective settings: the file's with the keys' fields over them.

The result must pass the same schema as the file, as a whole, or nothing changes. Pure.
"""

import hashlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from gateway.config import Config
from gateway.control.keys import KINDS, PREFIX, Place, applies, place
from gateway.control.store import printable
from gateway.schema import NAME

Hashes = Mapping[str, Mapping[str, str] | None]
"""What Redis holds at each key; None: something that is not a hash."""

Document = Mapping[str, Mapping[str, str]]
"""What may be put in force: hashes only, none of them empty."""


class Rejection(ValueError):
    """The keys do not make valid settings. `reasons` maps a key to what is wrong with it."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {why}" for key, why in reasons.items()))
        self.reasons = reasons


def overlay(config: Config, hashes: Hashes) -> Config:
    """The file configuration with the keys' fields over it. Raises Rejection."""
    document: dict[str, Any] = config.model_dump()
    reasons: dict[str, str] = {}
    for key, fields in hashes.items():
        found = place(key)
        if found is None or not applies(key, config):
            continue
        if fields == {}:
            continue
        if (shown := printable(key)) != key:
            reasons[shown] = "the key's name is not UTF-8: DEL it (redis-cli shows its bytes)"
        elif fields is None:
            reasons[key] = f"not a hash: DEL {key}, then use HSET"
        else:
            problem = _lay(found, fields, document)
            if problem is not None:
                reasons[key] = problem
    if reasons:
        raise Rejection(reasons)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise Rejection(_reasons(error)) from error


def digest(hashes: Hashes) -> str:
    """One word for what Redis holds; `commit.lua` makes the same of the keys themselves."""
    sha1 = hashlib.sha1(usedforsecurity=False)
    for key in sorted(hashes):
        fields = hashes[key]
        if fields is None:
            sha1.update(_item(key) + b"!")
        elif fields:
            sha1.update(_item(key))
            # By bytes, as Lua sorts: what is not UTF-8 stands elsewhere among Python's characters.
            for name in sorted(fields, key=_bytes):
                sha1.update(_item(name) + _item(fields[name]))
            sha1.update(b";")
    return sha1.hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _item(text: str) -> bytes:
    data = _bytes(text)
    return b"%d:%b" % (len(data), data)


def _lay(found: Place, fields: Mapping[str, str], document: dict[str, Any]) -> str | None:
    """Put one key's fields into the document; returns what is wrong with their names."""
    entry = found.entry(document)
    for field, text in fields.items():
        if (shown := printable(field)) != field:
            return f"{shown}: the field's name is not UTF-8: HDEL it"
        if printable(text) != text:
            return f"{field}: is not UTF-8, {printable(text)!r}: set it anew, or HDEL it"
        if not found.kind.knows(field):
            return _unknown(found, field)
        entry[field] = None if text.strip().lower() == "none" else text
    return None


def _unknown(found: Place, field: str) -> str:
    known = sorted(f for f in found.kind.schema.model_fields if found.kind.knows(f))
    if field in found.kind.schema.model_fields:
        return f"{field}: cannot be changed while running; fields: {', '.join(known)}"
    close = get_close_matches(field, known, 1, 0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{field}: no such field; {hint}fields: {', '.join(known)}"


def _reasons(error: ValidationError) -> dict[str, str]:
    words = {kind.section: word for word, kind in KINDS.items()}
    reasons: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        steps = [str(step) for step in problem["loc"] if step != "[key]"]
        word = words.get(steps[0]) if steps else None
        if word is None:
            key, rest = PREFIX.rstrip(":"), steps
        elif KINDS[word].named:
            key, rest = f"{PREFIX}{word}:{steps[1] if len(steps) > 1 else '?'}", steps[2:]
        else:
            key, rest = f"{PREFIX}{word}", steps[1:]
        message = problem["msg"].removeprefix("Value error, ")
        if problem.get("ctx", {}).get("pattern") == NAME:
            message = "a name is made of a-z, 0-9 and _ . - (at most 63)"
        if rest and problem["type"] != "missing":
            message += f", not {problem['input']!r}"
        reason = f"{'.'.join(rest)}: {message}" if rest else message
        reasons[key] = f"{reasons[key]}; {reason}" if key in reasons else reason
    return reasons
