"""How requests are kept away from an engine while it restarts: by our own fleet, or by telling the
gateways elsewhere that it is gone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from backends.discovery.registry import Registration
from backends.errors import NotServing
from backends.fleet import Fleet
from backends.managed.node import NotBack
from backends.probe import COMPLETIONS, Probe
from backends.scrape import RUNNING, WAITING, read
from backends.types import BackendSpec
from backends.upstreams import Spawn

READY_WITHIN = 1800.0
"""A large model takes long to load. An engine that is not back after this will not be."""
_LOOK_EVERY = 0.2


class FleetGate:
    """The engines of the gateway in this very process. `ready` says that one takes traffic."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        ready: Callable[[str], bool],
        within: float,
        ready_within: float = READY_WITHIN,
    ) -> None:
        self._fleet = fleet
        self._ready = ready
        self._within = within
        self._ready_within = ready_within

    async def leave(self, name: str) -> None:
        await self._fleet.drain(name, self._within)

    async def enter(self, name: str) -> None:
        self._fleet.readmit(name)
        give_up = monotonic() + self._ready_within
        while not self._ready(name):
            if monotonic() >= give_up:
                raise NotBack(f"{name} takes no traffic after {self._ready_within:.0f} s")
            await asyncio.sleep(_LOOK_EVERY)


class RegisteredGate:
    """Engines that gateways elsewhere find in Redis, or know the addresses of.

    One that leaves is taken out of Redis, so that those gateways drain it, and is left in peace
    until it says that it has no request any more. Without registrations the gateways are only
    spared what they would have sent to a starting engine: they find that out by themselves.
    """

    def __init__(
        self,
        engines: Sequence[BackendSpec],
        registrations: Mapping[str, Registration],
        spawn: Spawn,
        *,
        within: float,
        ready_within: float = READY_WITHIN,
    ) -> None:
        self._engines = {spec.name: spec for spec in engines}
        self._registrations = registrations
        self._spawn = spawn
        self._within = within
        self._ready_within = ready_within
        self._held: dict[str, asyncio.Task[None]] = {}

    async def leave(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
        give_up = monotonic() + self._within
        async with Probe(self._engines[name]) as probe:
            while monotonic() < give_up and await _busy(probe):  # noqa: ASYNC110 - another's state
                await asyncio.sleep(_LOOK_EVERY)

    async def enter(self, name: str) -> None:
        await self._serving(name)
        registration = self._registrations.get(name)
        if registration is not None:
            self._held[name] = self._spawn(f"registration-{name}", registration.hold())
            await registration.told()

    async def enter_all(self) -> None:
        """Each as soon as it serves."""
        await asyncio.gather(*(self.enter(name) for name in self._engines))

    async def leave_all(self) -> None:
        await asyncio.gather(*(self.leave(name) for name in self._engines))

    async def _serving(self, name: str) -> None:
        """Wait for a token: that it answers `/health` says nothing about the engine."""
        give_up = monotonic() + self._ready_within
        async with Probe(self._engines[name]) as probe:
            while True:
                try:
                    (model, *_) = await probe.models()
                    if (await probe.one_token(COMPLETIONS, model.name)).ok:
                        return
                except NotServing:
                    pass
                if monotonic() >= give_up:
                    raise NotBack(f"{name} gives no token after {self._ready_within:.0f} s")
                await asyncio.sleep(_LOOK_EVERY)


async def _busy(probe: Probe) -> bool:
    """Whether the engine has requests. One that does not say has none to wait for."""
    try:
        page = await probe.page("/metrics")
    except NotServing:
        return False
    values = read(page or b"")
    return sum(values.get(RUNNING, ())) + sum(values.get(WAITING, ())) > 0
