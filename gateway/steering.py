"""What operators want, brought to the parts that do it: the one place where settings become acts.

    file ─► control (Redis keys) ─► hours (peak) ─► what follows the traffic
             ─► shares of this gateway ─► scheduler, catalogue
             └► limits, canaries, drains, keys of the relays

Not here: what the keys mean (`control`), what a ticket meets (`door`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from time import monotonic

from backends.fleet import Fleet
from backends.types import BackendStatus, State
from gateway.canary.canaries import Canaries
from gateway.catalogue import Catalogue
from gateway.config import BackendConfig, Config
from gateway.control import Control
from gateway.control.snapshot import Snapshot
from gateway.door import Door
from gateway.driver import Driver
from gateway.hours import in_force
from gateway.replicas.sharing import Sharing, Use
from gateway.settings import scheduler_settings, settings_snapshot
from gateway.tasks import Tasks
from gateway.tenancy.config import KeyConfig
from gateway.tenancy.limits import Limits, quotas_of, slots_of
from gateway.tuning.adaptation import Adaptation
from gateway.tuning.told import Tell
from scheduler.events import SettingsChanged
from scheduler.tuning import Supply

log = logging.getLogger("forebay.steering")

BACKEND = "backend:"
_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))


@dataclass(frozen=True, slots=True)
class Steered:
    """The parts that are steered, and who hears of new API keys, of each accepted setting, and of
    what changed by itself."""

    driver: Driver
    fleet: Fleet
    catalogue: Catalogue
    keys: Callable[[Mapping[str, KeyConfig]], None]
    accepted: Callable[[], None]
    rejected: Callable[[dict[str, str]], None]
    tuned: Tell


class Steering:
    """The settings in force on this gateway. `door` is where its tickets enter."""

    def __init__(self, config: Config, tasks: Tasks, parts: Steered) -> None:
        self._parts = parts
        self._tasks = tasks
        self._grace = config.drain_grace
        self._host = config.host
        self._settings = config
        self._hour = config
        self._drained: set[str] = set()
        self._keys: Mapping[str, KeyConfig] = config.keys
        self._redis = config.redis
        snapshot = None
        if config.redis is not None:
            snapshot = Snapshot(settings_snapshot(config), config.redis)
        self.control = Control(config, self._accepted, parts.rejected, snapshot=snapshot)
        self.sharing = Sharing(config.redis, config.replicas, self._uses, self._reshared)
        self.canaries = Canaries(config.redis, lambda _: None)
        self.limits = Limits(config, self.sharing)
        self.door = Door(parts.driver, self.limits, self.canaries)
        self.adaptation = Adaptation(self.control.sets, self._supply, parts.tuned)

    def start(self) -> None:
        """Put the file's settings in force, and follow what changes them."""
        if not self._settings.keys and self._host not in _LOOPBACK:
            log.warning(
                "no API keys are configured: whoever reaches %s may use the engines; "
                "`forebay keys create TENANT` makes the first one",
                self._host,
            )
        self._apply()
        self._tasks.keep("control", self.control.follow)
        self._tasks.spawn("sharing", self.sharing.run())
        self._tasks.keep("canaries", self.canaries.run)
        self._tasks.spawn("hours", self._watch_the_clock())
        self._tasks.spawn("adaptation", self._follow_the_traffic())

    def share_of(self, backend: str) -> int | None:
        """How many requests this gateway may have in flight there; None: as configured."""
        lease = self.sharing.leases.get(BACKEND + backend)
        return None if lease is None else lease.may_use

    @property
    def in_force(self) -> Config:
        """The settings of this hour, with what follows the traffic."""
        return self._hour

    # what changes them

    def _accepted(self, config: Config) -> None:
        self._parts.accepted()
        self._settings = config
        self._apply()

    async def _watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self._settings.peak.windows and self._now() != self._hour:
                log.info("peak hours begin or end")
                self._apply()

    async def _follow_the_traffic(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tuning.interval)
            if self.adaptation.look(self._settings, monotonic()):
                self._apply()

    def _supply(self) -> list[Supply]:
        """What each ready backend prefills, and whose prompts."""
        rates = {view.name: view.prefill_rate for view in self._parts.driver.snapshot().backends}
        ready = {s.spec.name for s in self._parts.fleet.statuses() if s.state is State.READY}
        return [
            Supply(rates[name], frozenset(backend.classes))
            for name, backend in self._backends().items()
            if name in ready and name in rates and backend.weight
        ]

    def _now(self) -> Config:
        return self.adaptation.over(in_force(self._settings, datetime.now(UTC)))

    def _apply(self) -> None:
        """Bring the settings of this hour to every part."""
        config = self._hour = self._now()
        capacities = {BACKEND + name: spec.limit for name, spec in self._backends().items()}
        self.sharing.configure(capacities | slots_of(config), quotas_of(config))
        self.limits.configure(config)
        self.canaries.configure(config.canaries)
        self.door.ear.lengths = self.adaptation.arrived if config.tuning.enabled else None
        self.door.open = not (config.tenants or config.models or config.canaries)
        self._parts.driver.apply(SettingsChanged(scheduler_settings(config)))
        self._parts.catalogue.reconfigure(self._shared())
        self._drain(config)
        if config.keys != self._keys:
            self._keys = config.keys
            self._parts.keys(config.keys)

    def _drain(self, config: Config) -> None:
        wanted = {name for name, backend in config.backends.items() if backend.drain}
        present = {status.spec.name for status in self._parts.fleet.statuses()}
        for name in (wanted - self._drained) & present:
            self._drained.add(name)
            log.info("backend %s is drained by order", name)
            self._tasks.spawn(f"drain-{name}", self._until_drained(name))
        for name in self._drained - wanted:
            self._drained.discard(name)
            if name in present:
                self._parts.fleet.readmit(name)

    async def _until_drained(self, name: str) -> None:
        unused = await self._parts.fleet.drain(name, self._grace)
        log.info("backend %s %s", name, "is unused" if unused else "still has streams")

    # shares

    def status_changed(self, status: BackendStatus) -> None:
        """A backend that discovery has found is shared like the others; one that is gone is not."""
        known = BACKEND + status.spec.name in self.sharing.leases
        if not known and status.spec.name not in self._hour.backends:
            self._apply()

    def _backends(self) -> dict[str, BackendConfig]:
        """The configured backends, and those that discovery has found."""
        found = {
            spec.name: BackendConfig(
                url=spec.url,
                classes=tuple(sorted(spec.classes)),
                limit=spec.limit,
                weight=spec.weight,
            )
            for spec in (status.spec for status in self._parts.fleet.statuses())
            if spec.name not in self._hour.backends
        }
        return found | dict(self._hour.backends)

    def _shared(self) -> Config:
        """The settings with this gateway's shares in place of whole limits."""
        backends = {}
        for name, backend in self._backends().items():
            lease = self.sharing.leases.get(BACKEND + name)
            # 0: full, not gone. Its tickets wait for a share; they do not belong elsewhere.
            share = backend.limit if lease is None else lease.may_use
            backends[name] = backend.model_copy(update={"limit": share})
        return self._hour.model_copy(update={"backends": backends})

    def _reshared(self, names: frozenset[str]) -> None:
        changed = [name.removeprefix(BACKEND) for name in names if name.startswith(BACKEND)]
        if changed:
            self._parts.catalogue.relimit(self._shared(), changed)

    def _uses(self) -> Iterator[Use]:
        """What this gateway has in flight, and what it would have if it might: its queue, spread
        over the backends that it waits for."""
        snapshot = self._parts.driver.snapshot()
        backends = self._backends()
        waiting = dict.fromkeys(backends, 0)
        for pool in snapshot.pools:
            if pool.queued:
                serving = [
                    name
                    for name, backend in backends.items()
                    if not backend.classes or pool.service_class in backend.classes
                ]
                for name in serving:
                    waiting[name] += ceil(pool.queued / len(serving))
        for view in snapshot.backends:
            wanted = view.in_flight + waiting.get(view.name, 0)
            yield BACKEND + view.name, view.in_flight, wanted
        yield from self.limits.uses()
