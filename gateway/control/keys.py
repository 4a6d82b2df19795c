"""The operators' keys: their names, and where in the settings each one's fields go.

    forebay:<kind>:<name>    one entry of a section: forebay:class:short
    forebay:<kind>           a whole section: forebay:burst

Not here: whether the fields are valid (`overlay`), and how they are read (`reader`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from gateway.canary.config import CanaryConfig
from gateway.config import BackendConfig, BurstConfig, ClassConfig, Config, TokenizerConfig
from gateway.peak import PeakConfig
from gateway.tenancy.config import KeyConfig, ModelConfig, TenantConfig
from gateway.tuning.config import TuningConfig, UtilizationConfig

PREFIX = "forebay:"
HISTORY = "forebay:history"
VERSION = "forebay:version"
REJECTED = "forebay:rejected"
_PROGRAMS = frozenset((HISTORY, VERSION, REJECTED))
_REGISTERED = "forebay:registered:"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table of keys.

    `fields` are those that may change while Forebay runs (None: all of the schema's). `opens` says
    that a key may make an entry that the file does not have.
    """

    section: str
    schema: type[BaseModel]
    named: bool = True
    opens: bool = False
    fields: frozenset[str] | None = None

    def knows(self, field: str) -> bool:
        return field in (self.schema.model_fields if self.fields is None else self.fields)


KINDS: Mapping[str, Kind] = {
    "class": Kind("classes", ClassConfig),
    "backend": Kind(
        "backends", BackendConfig, fields=frozenset(("limit", "weight", "classes", "drain"))
    ),
    "model": Kind("models", ModelConfig, opens=True),
    "tenant": Kind("tenants", TenantConfig, opens=True),
    "key": Kind("keys", KeyConfig, opens=True),
    "burst": Kind("burst", BurstConfig, named=False),
    "peak": Kind("peak", PeakConfig, named=False),
    "tuning": Kind("tuning", TuningConfig, named=False),
    "utilization": Kind("utilization", UtilizationConfig, named=False),
    "canary": Kind("canaries", CanaryConfig, opens=True),
    "tokenizer": Kind("tokenizer", TokenizerConfig, named=False, fields=frozenset(("channel",))),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key's fields go: `name` is the entry's, or "" for a whole section."""

    kind: Kind
    name: str

    def entry(self, document: dict[str, Any]) -> dict[str, Any]:
        """The entry in a plain document of the settings; made if the key may make one."""
        section: dict[str, Any] = document[self.kind.section]
        return section.setdefault(self.name, {}) if self.kind.named else section


def typed(key: str) -> bool:
    """Whether the key is for people: not one that gateways, `forebay ctl` or backends write."""
    return key.startswith(PREFIX) and key not in _PROGRAMS and not key.startswith(_REGISTERED)


def place(key: str) -> Place | None:
    """None for a key that is none of the operators'."""
    if not typed(key):
        return None
    word, colon, name = key.removeprefix(PREFIX).partition(":")
    kind = KINDS.get(word)
    if kind is None or kind.named != bool(colon and name):
        return None
    return Place(kind, name)


def full(key: str) -> str:
    """The key as Redis has it; people may leave `forebay:` out."""
    return key if key.startswith(PREFIX) else PREFIX + key


def standing(config: Config) -> frozenset[str]:
    """The keys that always mean something, whether they exist or not."""
    keys = {f"{PREFIX}{word}" for word, kind in KINDS.items() if not kind.named}
    for word, kind in KINDS.items():
        if kind.named:
            keys.update(f"{PREFIX}{word}:{name}" for name in getattr(config, kind.section))
    return frozenset(keys)


def applies(key: str, config: Config) -> bool:
    """Whether the key changes something of this configuration."""
    found = place(key)
    if found is None:
        return False
    kind = found.kind
    return not kind.named or kind.opens or found.name in getattr(config, kind.section)


def stray(key: str, config: Config) -> str:
    """Why a key under our prefix changes nothing, with what may have been meant."""
    found = place(key)
    if found is not None:
        known = sorted(getattr(config, found.kind.section))
        return f"ignored: there is no {_word(key)} {found.name!r}; {_meant(found.name, known)}"
    word = _word(key)
    if word in KINDS:
        form = f"{PREFIX}{word}:NAME" if KINDS[word].named else f"{PREFIX}{word}"
        return f"ignored: the key is {form}"
    return f"ignored: there are no keys {PREFIX}{word}; {_meant(word, sorted(KINDS))}"


def _word(key: str) -> str:
    return key.removeprefix(PREFIX).partition(":")[0]


def _meant(given: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(given, known, 1, 0.6)
    listed = ", ".join(known[:20]) or "none"
    return f"did you mean {close[0]}? there are: {listed}" if close else f"there are: {listed}"
