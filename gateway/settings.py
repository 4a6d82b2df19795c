"""From the configuration to what each package is told; nothing is decided here."""

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backends.settings import FleetSettings, WarmSettings
from backends.types import BackendSpec, BackendStatus, State, Timeouts
from gateway.api.preparing import MediaLimits
from gateway.config import Config
from gateway.http_types import HttpLimits
from gateway.watchdog import Watch
from scheduler.model import (
    AdaptSpec,
    AffinitySpec,
    Backend,
    BackendState,
    BurstSpec,
    ClassSpec,
    Settings,
    TenantSpec,
)
from tokenizer_pool.prefix import BLOCK
from tokenizer_pool.types import PoolSettings

PREFILL_STEP = 2048
"""Tokens that vLLM prefills in one step by default."""

_STATES = {
    State.PROBING: BackendState.WARMING,
    State.WARMING: BackendState.WARMING,
    State.READY: BackendState.READY,
    State.DRAINING: BackendState.DRAINING,
    State.DOWN: BackendState.DOWN,
}


def scheduler_settings(config: Config) -> Settings:
    classes = tuple(ClassSpec(name, **spec.model_dump()) for name, spec in config.classes.items())
    tenants = tuple(TenantSpec(name, spec.weight) for name, spec in config.tenants.items())
    return Settings(
        classes=classes,
        burst=BurstSpec(**config.burst.model_dump()),
        adapt=AdaptSpec(**config.adapt.model_dump()),
        queue_wait=config.timeouts.queue_wait,
        **config.scheduler.model_dump(),
        affinity=AffinitySpec(block_tokens=BLOCK),
        tenants=tenants,
    )


def backend_specs(config: Config) -> list[BackendSpec]:
    return [
        BackendSpec(
            name=name,
            url=backend.url.rstrip("/"),
            classes=frozenset(backend.classes),
            limit=backend.limit,
            weight=backend.weight,
            api_key=backend.api_key,
        )
        for name, backend in config.backends.items()
    ]


def scheduler_backend(config: Config, status: BackendStatus, state: State) -> Backend:
    """A backend as the scheduler sees it: the operator's limits, the fleet's findings.

    What the operators' keys say of a configured backend goes before what the fleet was told when
    it began; of one that was discovered, its source says it.
    """
    own = config.backends.get(status.spec.name) or status.spec
    found = status.capabilities
    backend = Backend(
        name=status.spec.name,
        state=_STATES[state],
        models=frozenset(model.name for model in found.models) if found else frozenset(),
        classes=frozenset(own.classes),
        limit=max(1, round(own.limit * status.share)) if own.limit else 0,
        weight=own.weight,
        kv_tokens=found.kv_tokens if found else 0,
    )
    if status.prefill_rate is not None:
        backend = replace(backend, prefill_rate=status.prefill_rate)
    return backend


def fleet_settings(config: Config) -> FleetSettings:
    lengths = warm_up_lengths({n: spec.max_prompt_tokens for n, spec in config.classes.items()})
    warm = WarmSettings(
        requests=config.warm.requests,
        keep_after=config.warm.keep_warm_after,
        prompt_tokens=lengths,
    )
    return FleetSettings(warm=warm)


def warm_up_lengths(bounds: Mapping[str, int | None]) -> dict[str, tuple[int, ...]]:
    """Three quantiles of each class's prompts, taken as even between its bounds. The class without
    one is taken to reach a full prefill step, or twice its lower bound."""
    lengths, lower = {}, 0
    for name in sorted(bounds, key=lambda each: bounds[each] or math.inf):
        upper = bounds[name] or max(2 * lower, PREFILL_STEP)
        lengths[name] = tuple(round(lower + share * (upper - lower)) for share in (0.1, 0.5, 0.9))
        lower = upper
    return lengths


def pool_settings(config: Config) -> PoolSettings:
    cache = config.tokenizer.cache_dir or default_cache_dir()
    return PoolSettings(
        cache_dir=cache / "tokenizers",
        workers=config.tokenizer.workers,
        segment_cache_bytes=config.tokenizer.segment_cache,
    )


def stream_timeouts(config: Config) -> Timeouts:
    return Timeouts(**config.timeouts.model_dump(exclude={"queue_wait"}))


def http_limits(config: Config) -> HttpLimits:
    return HttpLimits(**config.http.model_dump(exclude={"comment_interval", "tls_cert", "tls_key"}))


def media_limits(config: Config) -> MediaLimits:
    return MediaLimits(**config.media.model_dump())


def watch(config: Config) -> Watch:
    own = config.tokenizer
    return Watch(sample=own.parity_sample, tolerated=own.parity_tolerated)


def settings_snapshot(config: Config) -> Path:
    """Where the last good settings are kept: one file for each Redis that was ever used."""
    if config.settings_snapshot is not None:
        return config.settings_snapshot
    cache = config.tokenizer.cache_dir or default_cache_dir()
    word = hashlib.sha256((config.redis or "").encode()).hexdigest()[:12]
    return cache / "settings" / f"{word}.json"


def default_cache_dir() -> Path:
    """Where extracted tokenizers are kept: $FOREBAY_CACHE, else the user's cache directory."""
    if own := os.environ.get("FOREBAY_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay"
