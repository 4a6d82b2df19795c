"""The settings as the page shows them: what is in force, what operators' keys changed, who did it.

Secrets stay here: no API key, no hash of a client's key and no password leaves this module.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from gateway.config import Config
from gateway.control import Control
from gateway.control.store import LOST, Store
from gateway.control.versions import Entry, history

SHOWN = 20
"""Versions of the history."""

_SECRET = frozenset({"api_key", "sha256"})
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


class SettingsView:
    """Reads the history when the version has changed, never on a request's path."""

    def __init__(self, control: Control, redis: str | None) -> None:
        self._control = control
        self._store = Store(redis) if redis is not None else None
        self._history: list[Entry] = []
        self._seen: tuple[Any, ...] | None = None

    async def refresh(self) -> bool:
        """Look again; whether there is anything new to show."""
        control = self._control
        seen = (control.version, control.up, control.effective, tuple(control.reasons.items()))
        if seen == self._seen:
            return False
        if self._store is not None and control.up:
            try:
                self._history = await history(await self._store.redis(), SHOWN)
            except LOST:
                # Control says that Redis is lost; what was read before is still true.
                await self._store.lost()
                return False
        self._seen = seen
        return True

    async def close(self) -> None:
        if self._store is not None:
            await self._store.lost()

    def document(self) -> dict[str, Any]:
        control = self._control
        return {
            "version": control.version,
            "redis": control.up,
            "effective": shown(control.effective),
            "history": [_entry(entry) for entry in self._history],
            "rejected": control.reasons,
        }


def _entry(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {"changes": [list(change) for change in entry.changes]}


def shown(config: Config) -> dict[str, Any]:
    """The settings by their dotted names. Of what is secret, whether it is there is enough."""
    return dict(_flat(config.model_dump(mode="json"), ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    name = path.rpartition(".")[2]
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    elif name in _SECRET:
        yield path, None if value is None else "(set)"
    elif isinstance(value, str):
        yield path, _USER_INFO.sub("", value)
    else:
        yield path, value
