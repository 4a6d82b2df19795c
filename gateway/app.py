"""The composition root: the only place that constructs the parts and ties them together."""

import logging
import time

from backends.fleet import Fleet
from backends.settings import FleetSettings, WarmSettings
from backends.types import BackendStatus, Load
from gateway.catalogue import Catalogue
from gateway.config import Config
from gateway.control import Control
from gateway.driver import Driver
from gateway.gate import Gate
from gateway.handlers import Handlers, Parts
from gateway.log import RequestLog
from gateway.metrics import Metrics, StateCollector
from gateway.record import RequestRecord
from gateway.retry import RetryBudget
from gateway.routes import Routes
from gateway.server import HttpServer
from gateway.settings import (
    backend_specs,
    default_cache_dir,
    http_limits,
    scheduler_settings,
    stream_timeouts,
)
from gateway.status import Status
from gateway.tasks import Tasks
from gateway.tokenization import Tokenization
from gateway.watchdog import Watchdog
from scheduler.events import Decided, LoadSeen, SettingsChanged
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import PoolSettings

log = logging.getLogger("forebay.app")
decisions = logging.getLogger("forebay.decisions")


class App:
    """One gateway on the running event loop."""

    def __init__(self, config: Config) -> None:
        self.tasks = Tasks()
        self.metrics = Metrics()
        self.config = config
        self._request_log = RequestLog(config.request_log) if config.request_log else None
        self.driver = Driver(scheduler_settings(config), self._decided)
        self.pool = TokenizerPool(_pool_settings(config), self.tasks.spawn)
        self.fleet = Fleet(
            backend_specs(config),
            _fleet_settings(config),
            self._status_changed,
            self.tasks.spawn,
            on_load=self._load_seen,
        )
        self.catalogue = Catalogue(
            config,
            self.pool,
            tokenize=self.fleet.tokenize,
            apply=self.driver.apply,
            published=_nobody_else,
            spawn=self.tasks.spawn,
        )
        self.control = Control(config, self._accepted, self._rejected)
        parts = Parts(
            pool=self.pool,
            gate=Gate(self.driver),
            fleet=self.fleet,
            directory=self.catalogue.directory,
            retries=RetryBudget(config.retry_share),
            timeouts=stream_timeouts(config),
            watchdog=Watchdog(self.catalogue.distrust, self.metrics.parity_differs),
            observe=self._observe,
            retried=self.metrics.retries.inc,
            expose_timings=config.expose_timings,
        )
        self.status = Status(
            catalogue=self.catalogue,
            control=self.control,
            statuses=self.fleet.statuses,
            snapshot=self.driver.snapshot,
            tokenizers=self.pool.report,
            draining=lambda: self.server.draining,
            started=time.time(),
        )
        tokenization = Tokenization(self.pool, self.catalogue.directory)
        routes = Routes(Handlers(parts), tokenization, self.status, self.metrics)
        self.server = HttpServer(routes, http_limits(config), self.tasks.spawn)
        self.metrics.registry.register(
            StateCollector(self.driver.snapshot, self.fleet, self.pool, lambda: self.control.up)
        )

    async def start(self) -> int:
        """Listen, then let the fleet get ready; returns the port. Raises OSError."""
        port = await self.server.listen(self.config.host, self.config.port)
        await self.pool.start()
        await self.fleet.start()
        self.tasks.spawn("control", self.control.follow())
        return port

    async def drain(self, grace: float) -> None:
        """Take nothing new; return when the streams have ended, or `grace` seconds are over."""
        self.driver.drain()
        await self.server.drain(grace)

    async def stop(self) -> None:
        """Stop every part, in the order of the request's path."""
        await self.server.drain(0.0)
        await self.fleet.stop()
        await self.pool.stop()
        await self.tasks.stop()
        if self._request_log is not None:
            await self._request_log.close()

    # how the parts tell each other

    def _status_changed(self, status: BackendStatus) -> None:
        log.info("backend %s is %s: %s", status.spec.name, status.state.value, status.reason)
        self.catalogue.status_changed(status)

    def _load_seen(self, load: Load) -> None:
        self.driver.apply(
            LoadSeen(load.backend, load.running, load.waiting, load.kv_usage, load.preemptions)
        )

    def _observe(self, record: RequestRecord) -> None:
        self.metrics.observe(record)
        if self._request_log is not None:
            self._request_log.write(record)

    def _decided(self, decision: Decided) -> None:
        self.metrics.decided(decision)
        decisions.info(
            "pool %s: limit %d → %d, %s (%s)",
            *(decision.pool, decision.before, decision.after, decision.what, decision.cause),
        )

    def _accepted(self, config: Config) -> None:
        self.metrics.settings_accepted.inc()
        self.driver.apply(SettingsChanged(scheduler_settings(config)))
        self.catalogue.reconfigure(config)

    def _rejected(self, reasons: dict[str, str]) -> None:
        if reasons:
            self.metrics.settings_rejected.inc()


def _fleet_settings(config: Config) -> FleetSettings:
    # A prompt of a typical length for each class: half its bound, or one full prefill step.
    lengths = {
        name: spec.max_prompt_tokens // 2 if spec.max_prompt_tokens else 2048
        for name, spec in config.classes.items()
    }
    warm = WarmSettings(
        requests=config.warm.requests,
        keep_after=config.warm.keep_warm_after,
        prompt_tokens=lengths,
    )
    return FleetSettings(warm=warm)


def _pool_settings(config: Config) -> PoolSettings:
    cache = config.tokenizer.cache_dir or default_cache_dir()
    return PoolSettings(
        cache_dir=cache / "tokenizers",
        workers=config.tokenizer.workers,
        segment_cache_bytes=config.tokenizer.segment_cache,
    )


def _nobody_else(_backend: str) -> None:
    """In one process the request path reads the catalogue's own directory."""
