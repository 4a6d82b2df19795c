"""The types that cross the border of `backends`."""

from dataclasses import dataclass
from enum import Enum


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
    """A model as `/v1/models` names it; `root` is where its weights and tokenizer come from."""

    name: str
    root: str
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a probe proved about a server. Channels default to text: ids must be earned."""

    version: str
    models: tuple[ServedModel, ...]
    chat: Channel = Channel.TEXT
    completions: Channel = Channel.TEXT
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """What `backends` tells the gateway at each change. `reason` is for a person."""

    spec: BackendSpec
    state: State
    capabilities: Capabilities | None
    reason: str
