"""What a source of backends is, and what every backend that it finds has in common."""

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from backends.types import BackendSpec

Found = Callable[[Sequence[BackendSpec]], None]
"""Takes the whole set that there is now."""

_LONGEST_NAME = 63


class Source(Protocol):
    """One place where backends are found."""

    async def follow(self, found: Found) -> None:
        """Tell the whole set at each change, until cancelled.

        A source that cannot be reached tells nothing: its last answer holds. That there are none
        is an answer, too.
        """


@dataclass(frozen=True, slots=True)
class Template:
    """What a source's backends have in common; `name` begins the names that it has to make up."""

    name: str
    classes: frozenset[str] = frozenset()
    limit: int = 64
    weight: float = 1.0
    scheme: str = "http"
    api_key: str | None = None

    def at(self, host: str, port: int, name: str | None = None) -> BackendSpec:
        """The backend at an address, by the given name if that is short enough for one."""
        made_up = f"{self.name}-{host.replace(':', '-')}-{port}"
        return BackendSpec(
            name=name if name and len(name) <= _LONGEST_NAME else made_up[-_LONGEST_NAME:],
            url=f"{self.scheme}://{_bracketed(host)}:{port}",
            classes=self.classes,
            limit=self.limit,
            weight=self.weight,
            api_key=self.api_key,
        )


class Backoff:
    """Seconds to wait after each failure on end: doubling, drawn, bounded."""

    def __init__(self, first: float = 0.5, longest: float = 15.0) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0
        self._rng = Random()

    def next(self) -> float:
        longest = min(self._first * 2.0**self._failures, self._longest)
        self._failures = min(self._failures + 1, 32)
        return longest * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
