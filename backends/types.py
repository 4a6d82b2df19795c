"""The types that cross the border of `backends`."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Channel(Enum):
    """How a backend was proved to take prompts."""

    IDS = "ids"
    TEXT = "text"


class State(Enum):
    """A backend's life: PROBING → WARMING → READY ⇄ DOWN (→ PROBING), DRAINING at the end."""

    PROBING = "probing"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """One configured vLLM server. `url` has no path; `classes` empty means every class."""

    name: str
    url: str
    classes: frozenset[str] = frozenset()
    limit: int = 64
    weight: float = 1.0
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as `/v1/models` names it; `root` is where its weights and tokenizer come from.

    `parent` is the base model's name when this one is a LoRA adapter.
    """

    name: str
    root: str
    max_model_len: int | None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a probe proved about a server. Channels default to text: ids must be earned.

    `generate_path` is the endpoint that answered a one-token text request, used for warm-up and
    health. `notes` say, for a person, what was seen where a channel was not granted. `kv_tokens` is
    the size of the KV cache (0: the server does not say), `memory_utilization` the share of the
    GPU's memory that the engine took (None: likewise).
    """

    version: str
    models: tuple[ServedModel, ...]
    chat: Channel = Channel.TEXT
    completions: Channel = Channel.TEXT
    notes: tuple[str, ...] = ()
    generate_path: str = "/v1/chat/completions"
    kv_tokens: int = 0
    memory_utilization: float | None = None


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """What `backends` tells the gateway at each change. `reason` is for a person.

    `prefill_rate` is in prompt tokens per second, measured by the last warm-up; None before it.
    `share` (over 0, at most 1) is the part of its limit that it should get now: less than 1 while
    a backend that has just come back is eased in beside others.
    """

    spec: BackendSpec
    state: State
    capabilities: Capabilities | None
    reason: str
    prefill_rate: float | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine's own metrics said at `at`, on the monotonic clock.

    Requests `running` and `waiting`, `preemptions` and tokens asked for and found in the prefix
    cache (since the server's start) are sums over its engines, `kv_usage` (0 to 1) is the fullest
    one's. `in_flight` is our own count at that
    moment; `started_at` is the server process's start in seconds of Unix time, where it tells.
    """

    backend: str
    at: float
    running: int
    waiting: int
    kv_usage: float
    preemptions: int
    in_flight: int
    started_at: float | None = None
    prefix_queries: int = 0
    prefix_hits: int = 0

    @property
    def drift(self) -> int:
        """Requests that the engine has and we do not know of (negative: the other way round)."""
        return self.running + self.waiting - self.in_flight


@dataclass(frozen=True, slots=True)
class OwnTraffic:
    """What warming up and keeping warm has cost a backend since the gateway's start."""

    requests: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest that each phase of an exchange may take, in seconds.

    `first_token` counts from the sent request to the body's first byte, `token_gap` between two
    reads of the body (time in which we had paused the stream does not count), `total` over both.
    """

    connect: float = 2.0
    first_token: float = 120.0
    token_gap: float = 60.0
    total: float = 3600.0


class Sink(Protocol):
    """Where a stream's body goes. What `write` raises ends the stream and leaves `relay`."""

    def write(self, data: bytes, /) -> None:
        """Take the next piece of the body. Called from the event loop; must not block."""
