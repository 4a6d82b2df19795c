"""All engines of a plan on this node, and restarting them one at a time."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol, Self

from backends.managed.process import check_port
from backends.managed.supervisor import ManagedEngine, ManagedSettings
from backends.plans.model import Engine, Plan
from backends.types import BackendSpec

HOPELESS = 3


class Gate(Protocol):
    """What keeps requests away from an engine that is restarted."""

    async def leave(self, name: str) -> None:
        """Return when no new request reaches it and those that it had have ended, or the time that
        they are given is over."""

    async def enter(self, name: str) -> None:
        """Return when it takes traffic again. Raises NotBack when it does not."""


class NotBack(Exception):
    """An engine did not come back from its restart."""


class ManagedNode:
    """The engines of one plan, from the beginning to the end of an `async with` block.

    `tell` gets every engine's lines, with its name. Raises PortTaken at the beginning, before
    anything was started.
    """

    def __init__(
        self, plan: Plan, settings: ManagedSettings, tell: Callable[[str, str], None]
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._running = AsyncExitStack()
        self._rolling = asyncio.Lock()
        self.engines = {
            engine.name: ManagedEngine(engine, settings, self._teller(engine.name))
            for engine in plan.engines
        }

    async def __aenter__(self) -> Self:
        for managed in self.engines.values():
            await check_port(self._settings.host, managed.engine.port)
        tasks = await self._running.enter_async_context(asyncio.TaskGroup())
        for name, managed in self.engines.items():
            tasks.create_task(managed.run(), name=f"engine-{name}")
        return self

    async def __aexit__(self, *_: Any) -> None:
        """End all of them, together."""
        await asyncio.gather(*(managed.stop() for managed in self.engines.values()))
        await self._running.aclose()

    def specs(self) -> list[BackendSpec]:
        """The engines as backends."""
        return [
            BackendSpec(
                name=name,
                url=f"http://{self._settings.host}:{managed.engine.port}",
                classes=frozenset(managed.engine.classes),
                limit=managed.engine.limit,
            )
            for name, managed in self.engines.items()
        ]

    def check(self, name: str) -> None:
        """Raises NotBack for an engine that ends by itself again and again: with what it was told
        to do (more memory than there is, say) it will not come up, however long one waits."""
        failures = self.engines[name].failures
        if failures >= HOPELESS:
            raise NotBack(f"{name} has ended by itself {failures} times in a row")

    async def roll(self, gate: Gate, plan: Plan | None = None) -> None:
        """Restart the engines one after the other, each drained before and warm again after.

        With a plan: as it says from now on, and only those that it changes. Raises NotBack, and
        the engines after that one keep running as they did; ValueError for a plan of others.
        """
        changed = self._changed(plan)
        async with self._rolling:
            for name, engine in changed.items():
                self._tell(name, "restarting: waiting for its requests to end")
                await gate.leave(name)
                await self.engines[name].restart(engine)
                await gate.enter(name)
                self._tell(name, "restarted, and warm")

    def _changed(self, plan: Plan | None) -> dict[str, Engine]:
        present = {name: managed.engine for name, managed in self.engines.items()}
        if plan is None:
            return present
        wanted = {engine.name: engine for engine in plan.engines}
        moved = [n for n, e in wanted.items() if n in present and present[n].port != e.port]
        if wanted.keys() != present.keys() or moved:
            raise ValueError("the plan has other engines or ports: end this one, start that one")
        return {name: engine for name, engine in wanted.items() if engine != present[name]}

    def _teller(self, name: str) -> Callable[[str], None]:
        return lambda line: self._tell(name, line)
