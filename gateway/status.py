"""What Forebay says about itself: /v1/models, /health, /ready."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from backends.types import BackendStatus, State
from gateway.bands import Band
from gateway.catalogue import Catalogue
from gateway.control import Control
from gateway.directory import Standing
from scheduler.snapshot import Snapshot
from tokenizer_pool.types import PoolReport


@dataclass(frozen=True, slots=True)
class Status:
    """Renders the answers; everything is read when asked for."""

    catalogue: Catalogue
    control: Control
    statuses: Callable[[], Iterable[BackendStatus]]
    snapshot: Callable[[], Snapshot]
    tokenizers: Callable[[], PoolReport]
    draining: Callable[[], bool]
    started: float = 0.0
    steering: Callable[[], dict[str, Any]] = dict

    def models(self) -> bytes:
        """OpenAI's list, with what vLLM adds to it."""
        models = [
            {
                "id": model.name,
                "object": "model",
                "created": int(self.started or time.time()),
                "owned_by": "forebay",
                "root": model.root,
                "parent": model.parent,
                "max_model_len": model.max_model_len,
            }
            for model in self.catalogue.directory.models()
        ]
        return orjson.dumps({"object": "list", "data": models})

    def all_ready(self) -> bool:
        """Whether every backend takes traffic."""
        names = (status.spec.name for status in self.statuses())
        return all(self.catalogue.state(name) is State.READY for name in names)

    def ready(self) -> tuple[bool, bytes]:
        """Whether a request would find a backend, and all that an operator wants to know."""
        snapshot = self.snapshot()
        ready = not self.draining() and self.catalogue.directory.any_ready()
        document = {
            "ready": ready,
            "all_ready": self.all_ready(),
            "draining": self.draining(),
            "backends": self._backends(snapshot),
            "pools": {p.service_class: asdict(p) for p in snapshot.pools},
            "tokenizers": asdict(self.tokenizers()),
            "redis_up": self.control.up,
            "settings_version": self.control.version,
            "rejected_settings": self.control.reasons,
            "steering": self.steering(),
        }
        return ready, orjson.dumps(document, option=orjson.OPT_INDENT_2)

    def _backends(self, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
        ledger = {view.name: view for view in snapshot.backends}
        backends = {}
        for status in self.statuses():
            name, found, view = status.spec.name, status.capabilities, ledger.get(status.spec.name)
            state = self.catalogue.state(name) or status.state
            standings = self.catalogue.standings(name)
            backends[name] = {
                "state": state.value,
                "reason": status.reason,
                "url": status.spec.url,
                "version": found.version if found else None,
                "models": {model: _standing(standing) for model, standing in standings.items()},
                "in_flight": view.in_flight if view else 0,
                "limit": view.limit if view else 0,
            }
        return backends


def _standing(standing: Standing) -> dict[str, Any]:
    """`chat` and `completions` are what is proved; the bands say what is used, and why (in ms)."""
    return {
        "chat": standing.chat.value,
        "completions": standing.completions.value,
        "reason": standing.reason,
        "chat_bands": [_band(band) for band in standing.chat_bands],
        "completion_bands": [_band(band) for band in standing.completion_bands],
    }


def _band(band: Band) -> dict[str, Any]:
    return {
        "up_to_tokens": band.up_to,
        "channel": band.channel.value,
        "ttft_ids_ms": None if band.ids is None else round(band.ids * 1e3, 3),
        "ttft_text_ms": None if band.text is None else round(band.text * 1e3, 3),
    }


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """The `routes.About` of a process that is its own brain."""

    status: Status
    render_metrics: Callable[[], Awaitable[bytes]]

    async def models(self) -> bytes:
        return self.status.models()

    async def ready(self) -> tuple[bool, bytes]:
        return self.status.ready()

    async def metrics(self) -> bytes:
        return await self.render_metrics()
