"""What decides, put together: scheduler, backends' lives, catalogue, control.

There is one on a machine, however many processes relay (`node`). Requests reach it through
`gate.Admitter`; it never sees one's text.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from backends.discovery.reconcile import Reconciler
from backends.fleet import Fleet
from backends.timed import time_to_first_token
from backends.types import BackendStatus, Load
from gateway.catalogue import Catalogue, Questions, Tokenizers
from gateway.config import Config
from gateway.directory import Row
from gateway.discovery import discover
from gateway.driver import Driver
from gateway.gauges import StateCollector
from gateway.handlers import PATHS
from gateway.memory.check import MemoryCheck
from gateway.memory.collector import MemoryCollector
from gateway.meter import WITHIN
from gateway.metrics import Metrics
from gateway.settings import backend_specs, fleet_settings, scheduler_settings
from gateway.status import Status
from gateway.steering import Steered, Steering
from gateway.steering_report import SteeringCollector, report
from gateway.tasks import Tasks
from gateway.tenancy.config import KeyConfig
from gateway.tuning.advisor import Advisor
from gateway.tuning.report import AdviceCollector
from gateway.tuning.told import Told
from gateway.ui.admin import Admin
from gateway.ui.document import Sources
from gateway.ui.news import News
from scheduler.events import BackendChanged, Decided, LoadSeen
from tokenizer_pool.types import Kind, PoolReport

log = logging.getLogger("forebay.brain")
decisions = logging.getLogger("forebay.decisions")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the brain needs of the process or processes around it.

    `published` hears the name of each backend whose row in the directory is new, `keys` the API
    keys when they are others; `rehearse` has every front rehearse with a backend.
    """

    tokenizers: Tokenizers
    report: Callable[[], PoolReport]
    draining: Callable[[], bool]
    published: Callable[[str], None]
    keys: Callable[[Mapping[str, KeyConfig]], None]
    rehearse: Callable[[str, Row], Coroutine[Any, Any, None]]


class Brain:
    """The parts, wired; `door` is the way in for requests."""

    def __init__(
        self, config: Config, tasks: Tasks, metrics: Metrics, surroundings: Surroundings
    ) -> None:
        self._tasks = tasks
        self._metrics = metrics
        self.driver = Driver(scheduler_settings(config), self._decided)
        self.fleet = Fleet(
            backend_specs(config),
            fleet_settings(config),
            self._status_changed,
            tasks.spawn,
            on_load=self._load_seen,
        )
        self.catalogue = Catalogue(
            config,
            surroundings.tokenizers,
            questions=Questions(self.fleet.tokenize, self._time, surroundings.rehearse),
            apply=self.driver.apply,
            published=surroundings.published,
            spawn=tasks.spawn,
        )
        self._config = config
        self.steering = Steering(config, tasks, self._steered(surroundings))
        self.control, self.door = self.steering.control, self.steering.door
        self.advisor = Advisor(lambda: self.control.effective, self.fleet.statuses)
        self.door.ear.heard.append(self.advisor.heard)
        self.memory = MemoryCheck(config.memory_check.interval, self._seats)
        self.status = Status(
            catalogue=self.catalogue,
            control=self.control,
            statuses=self.fleet.statuses,
            snapshot=self.driver.snapshot,
            tokenizers=surroundings.report,
            draining=surroundings.draining,
            started=time.time(),
            steering=partial(report, self.steering),
        )
        self._news = News()
        sources = Sources(
            catalogue=self.catalogue,
            control=self.control,
            fleet=self.fleet,
            snapshot=self.driver.snapshot,
            rows=metrics.rows,
            advices=self.advisor.advices,
            in_force=lambda: self.steering.in_force,
            findings=self.memory.document,
            draining=surroundings.draining,
        )
        self.admin = Admin(config, sources, self._news)
        state = StateCollector(
            self.driver.snapshot,
            self.fleet,
            surroundings.report,
            lambda: self.control.up,
            settings_version=lambda: self.control.version,
            tasks=lambda: len(tasks),
        )
        self._offer(state)

    def _offer(self, state: StateCollector) -> None:
        """What is read of the parts when somebody asks for `/metrics`."""
        register = self._metrics.registry.register
        register(SteeringCollector(self.steering))
        register(AdviceCollector(self.advisor))
        register(MemoryCollector(self.memory))
        register(state)

    def _steered(self, surroundings: Surroundings) -> Steered:
        return Steered(
            driver=self.driver,
            fleet=self.fleet,
            catalogue=self.catalogue,
            keys=surroundings.keys,
            accepted=self._accepted,
            rejected=self._rejected,
            tuned=self.tuned,
        )

    async def start(self) -> None:
        """Let the fleet get ready, and follow the operators' keys. Raises AdminTaken."""
        await self.admin.start(self._tasks.spawn)
        await self.fleet.start()
        discover(self._config.discovery, self._reconciler(), tuple(self._config.classes))
        self.steering.start()
        self._tasks.spawn("memory check", self.memory.run())

    async def stop(self) -> None:
        await self.admin.stop()
        await self.fleet.stop()

    def distrust(self, backend: str, model: str, reason: str) -> None:
        self._metrics.distrusted(backend, model)
        self._news.distrusted(backend, model, reason)
        self.catalogue.distrust(backend, model, reason)

    def understudy(self, backend: str) -> Driver:
        """A scheduler for one rehearsal's tickets, which knows this backend alone, as ready."""
        driver = Driver(scheduler_settings(self.control.effective), _ignore)
        known = self.catalogue.as_ready(backend)
        if known is not None:
            driver.apply(BackendChanged(replace(known, weight=1.0)))
        return driver

    async def _time(self, backend: str, kind: Kind, body: bytes) -> float:
        client = self.fleet.client(backend)
        return await time_to_first_token(client, PATHS[kind], body, within=WITHIN)

    # how the parts tell each other

    def _reconciler(self) -> Reconciler:
        """What turns discovered backends into members of the fleet; its sources keep it."""
        return Reconciler(
            self.fleet,
            self._tasks.spawn,
            within=self._config.drain_grace,
            on_removed=self.catalogue.removed,
            fixed=tuple(self._config.backends),
        )

    def _status_changed(self, status: BackendStatus) -> None:
        log.info("backend %s is %s: %s", status.spec.name, status.state.value, status.reason)
        self._news.backend(status)
        self.steering.status_changed(status)
        self.advisor.status_changed(status)
        self.catalogue.status_changed(status)

    def _seats(self, backend: str) -> int:
        """How many requests it may run at once, as configured or as its source says."""
        own = self.control.effective.backends.get(backend)
        if own is not None:
            return own.limit
        limits = {status.spec.name: status.spec.limit for status in self.fleet.statuses()}
        return limits.get(backend, 1)

    def _load_seen(self, load: Load) -> None:
        self.memory.saw(load)
        self.driver.apply(
            LoadSeen(load.backend, load.running, load.waiting, load.kv_usage, load.preemptions)
        )

    def _decided(self, decision: Decided) -> None:
        self._metrics.decided(decision)
        self._news.decided(decision)
        decisions.info(
            "pool %s: limit %d → %d, %s (%s)",
            *(decision.pool, decision.before, decision.after, decision.what, decision.cause),
        )

    def tuned(self, told: Told) -> None:
        """Something changed by itself: for the decision log, the page and the metrics."""
        self._metrics.tuned(told.kind)
        self._news.tuned(told)
        decisions.info("%s: %s, %s", told.subject, told.what, told.why)

    def _accepted(self) -> None:
        self._metrics.settings_accepted.inc()
        self._news.accepted()

    def _rejected(self, reasons: dict[str, str]) -> None:
        self._news.rejected(reasons)
        if reasons:
            self._metrics.settings_rejected.inc()


def _ignore(_decision: Decided) -> None:
    """What an understudy decides is in no log."""
