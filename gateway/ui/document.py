"""The present state of everything, as the page gets it. Read when asked for; nothing is kept."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from backends.types import BackendStatus, Load, OwnTraffic
from gateway.catalogue import Catalogue
from gateway.config import Config
from gateway.control import Control
from gateway.tuning.memory import Advice
from gateway.ui.counts import Rows
from scheduler.snapshot import BackendView, PoolView, Snapshot

NO_MINUTE: Mapping[str, Any] = {
    "rate": 0.0,
    "failed": 0.0,
    "streams": 0.0,
    "mean": None,
    "p50": None,
    "p95": None,
    "stages": [],
}


class Engines(Protocol):
    """What the page asks of the fleet."""

    def statuses(self) -> tuple[BackendStatus, ...]: ...

    def loads(self) -> tuple[Load, ...]: ...

    def own_traffic(self) -> dict[str, OwnTraffic]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Who knows what the page shows. `rows` reads one of the metrics, `advices` says what engines
    should take of their GPU's memory, `in_force` which settings requests meet now, `findings` what
    the last memory check saw of one."""

    catalogue: Catalogue
    control: Control
    fleet: Engines
    snapshot: Callable[[], Snapshot]
    rows: Rows
    advices: Callable[[], Iterable[Advice]]
    in_force: Callable[[], Config]
    findings: Callable[[str], list[dict[str, str]]]
    draining: Callable[[], bool]


def now(sources: Sources, minute: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The state of this moment; `minute` is what the last minute was, by class."""
    snapshot, control = sources.snapshot(), sources.control
    draining = sources.draining()
    return {
        "time": time.time(),
        "ready": not draining and sources.catalogue.directory.any_ready(),
        "draining": draining,
        "redis": control.up,
        "version": control.version,
        "rejected": control.reasons,
        "classes": [
            _class(pool, sources, minute.get(pool.service_class, NO_MINUTE))
            for pool in snapshot.pools
        ],
        "backends": _backends(sources, snapshot.backends),
    }


def _class(pool: PoolView, sources: Sources, minute: Mapping[str, Any]) -> dict[str, Any]:
    spec = sources.in_force().classes.get(pool.service_class)
    own = asdict(pool)
    own["name"] = own.pop("service_class")
    own["target"] = spec.ttft_target if spec else None
    own["longest"] = spec.max_prompt_tokens if spec else None
    return own | dict(minute)


def _backends(sources: Sources, views: Iterable[BackendView]) -> list[dict[str, Any]]:
    ledger = {view.name: view for view in views}
    loads = {load.backend: load for load in sources.fleet.loads()}
    own = sources.fleet.own_traffic()
    advices = {advice.backend: advice for advice in sources.advices()}
    found = []
    for status in sources.fleet.statuses():
        name = status.spec.name
        view, load, traffic = ledger.get(name), loads.get(name), own.get(name)
        state = sources.catalogue.state(name) or status.state
        standings = sources.catalogue.standings(name)
        found.append(
            {
                "name": name,
                "url": status.spec.url,
                "classes": sorted(status.spec.classes),
                "state": state.value,
                "reason": status.reason,
                "version": status.capabilities.version if status.capabilities else None,
                "channels": {model: standing.chat.value for model, standing in standings.items()},
                "in_flight": view.in_flight if view else 0,
                "limit": view.limit if view else 0,
                "backlog": view.prefill_backlog if view else 0,
                "prefill_rate": view.prefill_rate if view else None,
                "kv": load.kv_usage if load else None,
                "memory": asdict(advices[name]) if name in advices else None,
                "findings": sources.findings(name),
                "warm_requests": traffic.requests if traffic else 0,
                "warm_tokens": traffic.prompt_tokens if traffic else 0,
            }
        )
    return found
