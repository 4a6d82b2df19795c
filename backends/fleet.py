"""All backends of this process: one client, one probe and one supervised life each.

Lives here: construction, lookup by name, start and stop. Not here: what happens to one backend
(`lifecycle`), and which backend gets a request (the scheduler).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from backends.client import Client
from backends.errors import BackendError
from backends.lifecycle import Lifecycle
from backends.probe import Probe
from backends.scrape import Scrape
from backends.settings import FleetSettings
from backends.types import BackendSpec, BackendStatus, Load, OwnTraffic, State

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class Fleet:
    """The backends by name.

    `on_change` is called from the event loop with each new status, `on_load` with each reading of
    a READY backend's metrics.
    """

    def __init__(
        self,
        specs: Sequence[BackendSpec],
        settings: FleetSettings,
        on_change: Callable[[BackendStatus], None],
        spawn: Spawn,
        *,
        on_load: Callable[[Load], None] | None = None,
        rng: Random | None = None,
    ) -> None:
        """Raises ValueError for a bad URL or a name that occurs twice."""
        self._clients = {spec.name: Client(spec, settings.client) for spec in specs}
        if len(self._clients) != len(specs):
            raise ValueError("two backends have the same name")
        self._settings = settings
        self._on_change = on_change
        self._on_load = on_load
        self._spawn = spawn
        self._rng = rng or Random()
        self._lives: dict[str, Lifecycle] = {}
        self._scrapes: dict[str, Scrape] = {}
        self._living: dict[str, asyncio.Task[None]] = {}
        self._aiding: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to probe; returns at once. `on_change` tells of each backend that gets READY."""
        for name, client in self._clients.items():
            probe = Probe(client.spec, timeout=self._settings.probe_timeout)
            life = Lifecycle(
                client,
                probe,
                self._settings,
                self._on_change,
                has_peer=partial(self._has_peer, name),
                rng=self._rng,
            )
            self._lives[name] = life
            scrape = Scrape(life, self._settings.scrape, self._on_load)
            self._scrapes[name] = scrape
            self._living[name] = self._spawn(f"backend-{name}", life.run())
            self._aiding += [
                self._spawn(f"scrape-{name}", scrape.run()),
                self._spawn(f"connections-{name}", life.keep_connected()),
            ]

    async def stop(self) -> None:
        """End all lives and close every connection; streams still open break."""
        await _end([*self._living.values(), *self._aiding])
        for life in self._lives.values():
            await life.probe.close()
            await life.client.close()

    async def drain(self, name: str, within: float) -> bool:
        """Send nothing new to a backend, and wait at most so many seconds for its streams to end.

        True when none is left. It stays DRAINING, unprobed and not kept warm, until `readmit`.
        """
        self._lives[name].drain()
        await _end([self._living.pop(name)] if name in self._living else [])
        return await self._clients[name].until_unused(within)

    def readmit(self, name: str) -> None:
        """Take a drained backend back: it is probed and warmed as a new one is."""
        if name not in self._living:
            self._living[name] = self._spawn(f"backend-{name}", self._lives[name].run())

    def client(self, name: str) -> Client:
        """The client of a backend; KeyError for a name that is not configured."""
        return self._clients[name]

    def statuses(self) -> tuple[BackendStatus, ...]:
        """The present status of each backend, in the configured order."""
        return tuple(life.status for life in self._lives.values())

    def loads(self) -> tuple[Load, ...]:
        """The last reading of each backend's own metrics, as far as there was one."""
        return tuple(s.last for s in self._scrapes.values() if s.last is not None)

    def own_traffic(self) -> dict[str, OwnTraffic]:
        """What warming and keeping warm has cost each backend."""
        return {
            name: OwnTraffic(life.warmer.requests, life.warmer.prompt_tokens)
            for name, life in self._lives.items()
        }

    def report_failure(self, name: str, error: BackendError) -> None:
        """Tell of an error that a request met.

        Without a connection the backend is DOWN before this returns; any other error has it
        checked at once.
        """
        self._lives[name].report_failure(error)

    def _has_peer(self, name: str) -> bool:
        """Whether another READY backend serves a class and a model of this one."""
        own = self._lives[name].status
        return any(
            other.spec.name != name
            and other.state is State.READY
            and (
                not own.spec.classes
                or not other.spec.classes
                or bool(own.spec.classes & other.spec.classes)
            )
            and bool(_models(own) & _models(other))
            for other in self.statuses()
        )

    async def tokenize(self, name: str, model: str, **question: Any) -> list[int] | None:
        """What the backend's own `/tokenize` makes of `prompt=` or `messages=` (and `tools=`).

        None when it is not offered or refuses the question; raises NotServing without an answer.
        """
        return await self._lives[name].probe.tokenize(model, **question)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _models(status: BackendStatus) -> frozenset[str]:
    found = status.capabilities
    return frozenset(model.name for model in found.models) if found else frozenset()
