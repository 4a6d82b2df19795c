"""All backends: one client, one probe and one supervised life each.

Lives here: construction, lookup by name, coming and going, start and stop. Not here: what happens
to one backend (`lifecycle`), and which backend gets a request (the scheduler).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from backends.client import Client
from backends.errors import BackendError, NotServing
from backends.lifecycle import Lifecycle, Tools
from backends.probe import Probe
from backends.scrape import Scrape
from backends.settings import FleetSettings
from backends.traffic import TrafficReports
from backends.types import BackendSpec, BackendStatus, Load, OwnTraffic, State
from backends.upstreams import Spawn, Upstreams
from backends.warm import Warmer


@dataclass(slots=True)
class _Member:
    life: Lifecycle
    scrape: Scrape
    living: asyncio.Task[None] | None
    scraping: asyncio.Task[None]


class Fleet:
    """The backends by name.

    `on_change` is called from the event loop with each new status, `on_load` with each reading of
    a READY backend's metrics. Relay processes that carry traffic, if there are any, tell of it in
    `reports`, and of what they meet to `answered` and `report_failure`.
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
        self._settings = settings
        self._on_change = on_change
        self._on_load = on_load
        self._spawn = spawn
        self._rng = rng or Random()
        self.reports = TrafficReports()
        self._members: dict[str, _Member] = {}
        self._upstreams = Upstreams(
            settings.client, spawn, on_answer=self.answered, on_failure=self.report_failure
        )
        self._waiting = {spec.name: (spec, self._upstreams.add(spec)) for spec in specs}

    async def start(self) -> None:
        """Begin to probe; returns at once. `on_change` tells of each backend that gets READY."""
        waiting, self._waiting = self._waiting, {}
        for spec, client in waiting.values():
            self._begin(spec, client)

    async def stop(self) -> None:
        """End all lives and close every connection; streams still open break."""
        await asyncio.gather(*(self._end(member) for member in self._members.values()))
        await self._upstreams.stop()

    def add(self, spec: BackendSpec) -> None:
        """Take one more backend in, now. Raises ValueError for a bad URL or a taken name."""
        self._begin(spec, self._upstreams.add(spec))

    async def remove(self, name: str, within: float) -> bool:
        """Drain a backend, and forget it when its streams have ended or `within` seconds are over.

        True when it is gone; False when it was readmitted meanwhile, or another call removed it.
        KeyError for a name that is not there.
        """
        member = self._members[name]
        unused = await self.drain(name, within)
        while unused and member.living is None:
            await asyncio.sleep(self._settings.linger)
            if not member.life.traffic.in_flight:
                break
            unused = await member.life.traffic.until_unused(within)
        if member.living is not None or self._members.get(name) is not member:
            return False
        del self._members[name]
        await self._end(member)
        await self._upstreams.remove(name, within=0)
        self.reports.end(name)
        return True

    def update(self, spec: BackendSpec) -> None:
        """Change the classes, limit or weight of a backend that stays the same server."""
        self._members[spec.name].life.respecify(spec)

    async def drain(self, name: str, within: float) -> bool:
        """Send nothing new to a backend, and wait at most so many seconds for its streams to end.

        True when none is left. It stays DRAINING, unprobed and not kept warm, until `readmit`.
        """
        member = self._members[name]
        member.life.drain()
        living, member.living = member.living, None
        if living is not None:
            await _cancelled(living)
        return await member.life.traffic.until_unused(within)

    def readmit(self, name: str) -> None:
        """Take a drained backend back: it is probed and warmed as a new one is."""
        member = self._members[name]
        if member.living is None:
            member.living = self._spawn(f"backend-{name}", member.life.run())

    def client(self, name: str) -> Client:
        """The client of a backend; ConnectFailed for a name that is not there (any more)."""
        return self._upstreams.client(name)

    def statuses(self) -> tuple[BackendStatus, ...]:
        """The present status of each backend, in the order in which they came."""
        return tuple(member.life.status for member in self._members.values())

    def loads(self) -> tuple[Load, ...]:
        """The last reading of each backend's own metrics, as far as there was one."""
        readings = (member.scrape.last for member in self._members.values())
        return tuple(load for load in readings if load is not None)

    def own_traffic(self) -> dict[str, OwnTraffic]:
        """What warming and keeping warm has cost each backend."""
        warmers = {name: member.life.warmer for name, member in self._members.items()}
        return {
            name: OwnTraffic(warmer.requests, warmer.prompt_tokens)
            for name, warmer in warmers.items()
        }

    def spent(self, name: str, cost: OwnTraffic) -> None:
        """Requests of ours, sent elsewhere than by the backend's own warmer, have cost this."""
        if name in self._members:
            warmer = self._members[name].life.warmer
            warmer.requests += cost.requests
            warmer.prompt_tokens += cost.prompt_tokens

    def answered(self, name: str, status: int, times: int = 1) -> None:
        """Requests were answered by a backend, here or in a relay process, which may tell of many
        successes at once. Nothing for a backend that is gone."""
        if name in self._members:
            self._members[name].life.answered(status, times)

    def report_failure(self, name: str, error: BackendError) -> None:
        """Tell of an error that a request met, here or in a relay process.

        Without a connection the backend is DOWN before this returns; any other error has it
        checked at once. Nothing for one that is gone.
        """
        if name in self._members:
            self._members[name].life.report_failure(error)

    async def tokenize(self, name: str, model: str, **question: Any) -> list[int] | None:
        """What the backend's own `/tokenize` makes of `prompt=` or `messages=` (and `tools=`).

        None when it is not offered or refuses the question; raises NotServing without an answer,
        also for a backend that is gone.
        """
        if name not in self._members:
            raise NotServing(name, "the backend was removed")
        return await self._members[name].life.probe.tokenize(model, **question)

    def _begin(self, spec: BackendSpec, client: Client) -> None:
        traffic = self.reports.begin(spec.name, client)
        life = Lifecycle(
            Tools(
                traffic,
                Probe(spec, timeout=self._settings.probe_timeout),
                Warmer(client, self._settings.warm, self._rng),
            ),
            self._settings,
            self._changed,
            has_peer=partial(self._has_peer, spec.name),
            rng=self._rng,
        )
        scrape = Scrape(life, self._settings.scrape, self._on_load)
        self._members[spec.name] = _Member(
            life,
            scrape,
            self._spawn(f"backend-{spec.name}", life.run()),
            self._spawn(f"scrape-{spec.name}", scrape.run()),
        )

    def _changed(self, status: BackendStatus) -> None:
        self._upstreams.keep_ready(status.spec.name, ready=status.state is State.READY)
        self._on_change(status)

    async def _end(self, member: _Member) -> None:
        tasks = (member.living, member.scraping)
        await asyncio.gather(*(_cancelled(task) for task in tasks if task is not None))
        await member.life.probe.close()

    def _has_peer(self, name: str) -> bool:
        """Whether another READY backend serves a class and a model of this one."""
        own = self._members[name].life.status
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


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _models(status: BackendStatus) -> frozenset[str]:
    found = status.capabilities
    return frozenset(model.name for model in found.models) if found else frozenset()
