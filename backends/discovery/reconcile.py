"""From what the sources found to backends joining and leaving the fleet."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from backends.discovery.source import Found, Source
from backends.types import BackendSpec
from backends.upstreams import Spawn

log = logging.getLogger("forebay.discovery")


class Members(Protocol):
    """What a Fleet can do that is needed here."""

    def add(self, spec: BackendSpec) -> None: ...
    def update(self, spec: BackendSpec) -> None: ...
    def readmit(self, name: str) -> None: ...
    async def remove(self, name: str, within: float) -> bool: ...


class Reconciler:
    """Makes the fleet's members what the sources' last answers say, taken together.

    A backend that is found no more is drained, for at most `within` seconds, and `on_removed` is
    told of it when it is gone; one that is found again meanwhile is taken back. One that is found
    under the same name at another address leaves first, then joins. `fixed` members are not
    touched, and their names are taken.
    """

    def __init__(
        self,
        members: Members,
        spawn: Spawn,
        *,
        within: float,
        on_removed: Callable[[str], None],
        fixed: Sequence[str] = (),
    ) -> None:
        self._members = members
        self._spawn = spawn
        self._within = within
        self._on_removed = on_removed
        self._fixed = frozenset(fixed)
        self._answers: dict[str, tuple[BackendSpec, ...]] = {}
        self._present: dict[str, BackendSpec] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def follow(self, name: str, source: Source) -> None:
        """Begin to follow a source. The first one that finds a name has it."""
        self._answers[name] = ()
        self._spawn(f"discovery-{name}", source.follow(self._found_by(name)))

    def _found_by(self, name: str) -> Found:
        def found(specs: Sequence[BackendSpec]) -> None:
            self._answers[name] = tuple(specs)
            self._reconcile()

        return found

    def _wanted(self) -> dict[str, BackendSpec]:
        wanted: dict[str, BackendSpec] = {}
        for specs in self._answers.values():
            for spec in specs:
                if spec.name not in self._fixed:
                    wanted.setdefault(spec.name, spec)
        return wanted

    def _reconcile(self) -> None:
        wanted = self._wanted()
        for name in self._present.keys() - wanted.keys():
            self._leave(name)
        for name, spec in wanted.items():
            present = self._present.get(name)
            if present is None:
                self._join(spec)
            elif (present.url, present.api_key) != (spec.url, spec.api_key):
                self._leave(name)
            else:
                self._stay(spec)

    def _join(self, spec: BackendSpec) -> None:
        try:
            self._members.add(spec)
        except ValueError as error:
            log.error("a backend that was found cannot join: %s", error)
        else:
            log.info("backend %s joins: found at %s", spec.name, spec.url)
            self._present[spec.name] = spec

    def _stay(self, spec: BackendSpec) -> None:
        if self._leaving.pop(spec.name, None) is not None:
            log.info("backend %s was found again", spec.name)
            self._members.readmit(spec.name)
        if self._present[spec.name] != spec:
            self._present[spec.name] = spec
            self._members.update(spec)

    def _leave(self, name: str) -> None:
        if name not in self._leaving:
            log.info("backend %s leaves: %s is found no more", name, self._present[name].url)
            self._leaving[name] = self._spawn(f"leave-{name}", self._remove(name))

    async def _remove(self, name: str) -> None:
        if await self._members.remove(name, self._within):
            self._leaving.pop(name, None)
            del self._present[name]
            self._on_removed(name)
            self._reconcile()
