"""The one schema of Forebay's settings: the file, the command line and the Redis keys all meet it.

Defaults live here; where a default comes from is said beside it. Times are in seconds.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, Field, model_validator

from gateway.bands import ChannelChoice
from gateway.canary.config import CanaryConfig
from gateway.discovery import DiscoveryConfig
from gateway.memory.config import MemoryCheckConfig
from gateway.peak import PeakConfig
from gateway.replicas.config import ReplicasConfig
from gateway.schema import Count, ModelName, Name, Names, Schema, Seconds, Share, Url, redis_urls
from gateway.tenancy.config import KeyConfig, ModelConfig, TenantConfig
from gateway.tracing.config import TracingConfig
from gateway.tuning.config import TuningConfig, UtilizationConfig
from gateway.ui.config import AdminConfig
from scheduler.model import Placement


class ClassConfig(Schema):
    """A service class. The one class without `max_prompt_tokens` takes what is left."""

    max_prompt_tokens: Annotated[
        Count | None, Field(description="its longest prompt; exactly one class has none")
    ] = None
    limit: Annotated[
        Count | None,
        Field(description="requests in flight in each gateway, besides the backends' limits"),
    ] = None
    queue_limit: Annotated[
        int, Field(ge=0, le=1_000_000, description="waiting requests; one more is answered 429")
    ] = 1024
    queue_tokens: Annotated[
        Count | None, Field(description="prompt tokens that may wait together")
    ] = None
    queue_bytes: Annotated[
        Annotated[int, Field(ge=1)] | None, Field(description="body bytes that may wait together")
    ] = None
    ttft_target: Annotated[Seconds, Field(description="what the class's TTFT should be")] = 0.6
    spill: Annotated[
        Names, Field(description="classes whose idle backends it may use, best first")
    ] = ()
    tenant_queue_limit: Annotated[
        Count | None, Field(description="waiting requests of one tenant")
    ] = None
    tenant_queue_tokens: Annotated[
        Count | None, Field(description="prompt tokens of one tenant that may wait together")
    ] = None
    tenant_queue_bytes: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="body bytes of one tenant that may wait together"),
    ] = None


class BackendConfig(Schema):
    """One vLLM server. `classes` empty: it serves every class."""

    url: Url
    classes: Annotated[
        Names, Field(description="the classes it serves, with commas; empty: all of them")
    ] = ()
    limit: Annotated[
        Count, Field(description="its requests in flight, over all gateways that share it")
    ] = 64
    weight: Annotated[
        float, Field(ge=0, le=1000, description="predicted times count divided by it; 0: no new")
    ] = 1.0
    drain: Annotated[
        bool, Field(description="on: nothing new, streams finish, no probes; off: proved, warmed")
    ] = False
    api_key: str | None = None


class BurstConfig(Schema):
    """Source: "sudden long text (>2048): halve max_num_seqs"."""

    prompt_tokens: Annotated[Count, Field(description="a longer prompt is a burst prompt")] = 2048
    in_flight: Annotated[
        Count, Field(description="so many in prefill per backend make one more a burst")
    ] = 1
    window: Annotated[Seconds, Field(description="a pool is halved at most once in it")] = 1.0
    clean_interval: Annotated[
        Seconds, Field(description="without a burst for so long, a limit grows by a step")
    ] = 1.0
    recovery_step: Annotated[
        float, Field(gt=0, le=1, description="the step, as a share of the configured limit")
    ] = 0.25
    prompts: Annotated[
        Count | None, Field(description="so many burst prompts within the window are a burst")
    ] = None
    tokens: Annotated[
        Count | None, Field(description="burst prompts of so many tokens within the window are")
    ] = None
    whole_pool: Annotated[
        bool, Field(description="on: a burst halves the pools of all classes")
    ] = False


class SchedulerConfig(Schema):
    """How tickets are ordered and placed; `scheduler.model.Settings` says what each one means."""

    placement: Placement = Placement.PREDICTED
    short_reserve: Share = 0.25
    kv_reserve: Share = 0.05
    ageing: Seconds = 10.0
    class_by_uncached: bool = False
    spill_reserve: Share = 0.5


class AdaptConfig(Schema):
    """When a single backend's limit is halved, and how it recovers."""

    window: Seconds = 1.0
    clean_interval: Seconds = 2.0
    recovery_step: Annotated[float, Field(gt=0, le=1)] = 0.03
    late: Count | None = 3


class TimeoutConfig(Schema):
    """One limit for each phase of a request; none is infinite."""

    queue_wait: Seconds = 60.0
    connect: Seconds = 2.0
    first_token: Seconds = 120.0
    token_gap: Seconds = 60.0
    total: Seconds = 3600.0


class HttpConfig(Schema):
    """What one client connection may cost; sizes in bytes. TLS with a certificate and its key."""

    max_head: Annotated[int, Field(ge=1024, le=1 << 20)] = 64 << 10
    max_body: Annotated[int, Field(ge=1024, le=1 << 30)] = 64 << 20
    read_timeout: Seconds = 30.0
    idle_timeout: Seconds = 75.0
    stall_timeout: Seconds = 60.0
    comment_interval: Seconds | None = None
    max_connections_per_address: Annotated[int, Field(ge=0, le=1 << 20)] = 4096
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @model_validator(mode="after")
    def _both_files(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: give both, or neither")
        return self


class MediaConfig(Schema):
    """Bounds of requests with pictures, sounds or films; size in bytes."""

    max_body: Annotated[int, Field(ge=1024, le=1 << 30)] = 20 << 20
    max_parts: Annotated[int, Field(ge=1, le=1000)] = 16


class TokenizerConfig(Schema):
    """`sources` overrides, by model name, where the backend says its tokenizer is."""

    sources: Mapping[str, str] = {}
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    segment_cache: Annotated[int, Field(ge=0, le=1 << 32)] = 32 << 20
    cache_dir: Path | None = None
    channel: Annotated[
        ChannelChoice, Field(description="a change also clears what the watchdog has found")
    ] = ChannelChoice.AUTO
    channel_refresh: Seconds = 3600.0
    parity_sample: Annotated[int, Field(ge=0)] = 1000
    parity_tolerated: Annotated[int, Field(ge=0, le=1000)] = 2


RedisUrls = Annotated[
    str, Field(pattern=r"^(redis|rediss|unix)://\S+$"), AfterValidator(redis_urls)
]
"""One URL, or several with commas between: the first that is a primary is used."""


class WarmConfig(Schema):
    """Source: 10 parallel one-token requests before a backend takes traffic."""

    requests: Annotated[int, Field(ge=1, le=1000)] = 10
    keep_warm_after: Seconds = 10.0


def _default_classes() -> Mapping[str, ClassConfig]:
    # 1,024 tokens are half a default vLLM prefill step (2,048): two short prompts share a step,
    # so a short prompt never makes another one wait for more than one step.
    return {"short": ClassConfig(max_prompt_tokens=1024), "long": ClassConfig(ttft_target=5.0)}


class Config(Schema):
    """Everything that `forebay serve` can be told."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    admin: AdminConfig = AdminConfig()
    backends: Mapping[Name, BackendConfig] = {}
    discovery: Mapping[Name, DiscoveryConfig] = {}
    classes: Mapping[Name, ClassConfig] = Field(default_factory=_default_classes)
    burst: BurstConfig = BurstConfig()
    models: Mapping[ModelName, ModelConfig] = {}
    aliases: Mapping[ModelName, ModelName] = {}
    tenants: Mapping[Name, TenantConfig] = {}
    keys: Mapping[Name, KeyConfig] = {}
    peak: PeakConfig = PeakConfig()
    canaries: Mapping[ModelName, CanaryConfig] = {}
    replicas: ReplicasConfig = ReplicasConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    adapt: AdaptConfig = AdaptConfig()
    tuning: TuningConfig = TuningConfig()
    utilization: UtilizationConfig = UtilizationConfig()
    memory_check: MemoryCheckConfig = MemoryCheckConfig()
    timeouts: TimeoutConfig = TimeoutConfig()
    http: HttpConfig = HttpConfig()
    media: MediaConfig = MediaConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    warm: WarmConfig = WarmConfig()
    redis: RedisUrls | None = None
    settings_snapshot: Path | None = None
    workers: Annotated[int, Field(ge=1, le=256)] | None = None
    retry_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    drain_grace: Seconds = 30.0
    tracing: TracingConfig = TracingConfig()
    drain_delay: Annotated[float, Field(ge=0, le=3600)] = 0.0
    expose_timings: bool = False
    request_log: str | None = None
    request_log_sample: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.backends and not self.discovery:
            raise ValueError(
                "no backend is configured: give --backend URL, or backends: or discovery: in the "
                "file"
            )
        unbounded = [n for n, c in self.classes.items() if c.max_prompt_tokens is None]
        if len(unbounded) != 1:
            raise ValueError(
                "exactly one class must have no max_prompt_tokens, to take every longer prompt; "
                f"now: {', '.join(unbounded) or 'none'}"
            )
        bounds = [c.max_prompt_tokens for c in self.classes.values() if c.max_prompt_tokens]
        if len(set(bounds)) != len(bounds):
            raise ValueError("two classes have the same max_prompt_tokens")
        for name, spec in self.classes.items():
            if name in spec.spill:
                raise ValueError(f"class {name} spills to itself: name other classes, or none")
            if unknown := set(spec.spill) - set(self.classes):
                raise ValueError(f"class {name} spills to classes that do not exist: {unknown}")
        for name, backend in self.backends.items():
            if unknown := set(backend.classes) - set(self.classes):
                raise ValueError(
                    f"backend {name} names classes that do not exist: {_names(unknown)}; "
                    f"there are: {_names(self.classes)}"
                )
        self._check_aliases()
        self._check_tenants()
        self._check_canaries()
        return self

    def _check_aliases(self) -> None:
        for alias, model in self.aliases.items():
            if model in self.aliases:
                raise ValueError(f"{alias} is an alias of an alias: {model}")

    def _check_tenants(self) -> None:
        for name, tenant in self.tenants.items():
            if unknown := set(tenant.classes) - set(self.classes):
                raise ValueError(
                    f"tenant {name} names classes that do not exist: {_names(unknown)}; "
                    f"there are: {_names(self.classes)}"
                )
        by_hash: dict[str, str] = {}
        for name, key in self.keys.items():
            if (other := by_hash.setdefault(key.sha256, name)) != name:
                raise ValueError(f"keys {other} and {name} are the same key")

    def _check_canaries(self) -> None:
        for model, canary in self.canaries.items():
            # Which backends discovery will find is not known here.
            if not self.discovery and (unknown := {*canary.old, *canary.new} - set(self.backends)):
                raise ValueError(
                    f"canary {model} names backends that do not exist: {_names(unknown)}; "
                    f"there are: {_names(self.backends)}"
                )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def parse_backends(options: list[str]) -> dict[str, dict[str, Any]]:
    """`URL` or `CLASS=URL`, each option one backend, named by class and number."""
    backends: dict[str, dict[str, Any]] = {}
    for option in options:
        match = re.match(r"^([a-z0-9][a-z0-9_.-]*)=(https?://.*)$", option)
        prefix, url = match.groups() if match else ("backend", option)
        number = sum(1 for name in backends if name.rsplit("-", 1)[0] == prefix)
        backends[f"{prefix}-{number}"] = {"url": url, "classes": [prefix] if match else []}
    return backends


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a YAML file as plain values; ValueError says what is wrong with it."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold a mapping of settings")
    return document
