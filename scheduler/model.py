"""What the scheduler is told: classes, settings, backends, tickets. Frozen values only.

Times are seconds on the caller's monotonic clock, durations seconds, sizes tokens.
"""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """A service class: prompts up to `max_prompt_tokens` that no smaller class takes.

    `max_prompt_tokens=None` takes everything; exactly one class of a setting has it.
    `limit` bounds the requests in flight in the class's whole pool (None: the backends' own
    limits alone). `queue_limit` bounds its queued tickets.
    """

    name: str
    max_prompt_tokens: int | None = None
    limit: int | None = None
    queue_limit: int = 1024
    ttft_target: float = 0.6


@dataclass(frozen=True, slots=True)
class BurstSpec:
    """When long prompts halve a pool's concurrency limit, and how it recovers.

    A prompt over `prompt_tokens` that arrives while `in_flight` such prompts or more are in
    flight in the pool halves the pool's effective limit (floor 1), at most once per `window`.
    After `clean_interval` seconds without a trigger the limit grows by one `recovery_step`
    (a share of the configured limit, at least 1) per interval until it is whole again.
    """

    prompt_tokens: int = 2048
    in_flight: int = 1
    window: float = 1.0
    clean_interval: float = 1.0
    recovery_step: float = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator may change while running.

    `queue_wait` is how long a ticket without a deadline may queue. `short_reserve` is the share
    of a backend's slots that only the smallest class may use where the backend serves several.
    `ageing` is the head start that one priority step gives, in seconds of queueing, so that
    a ticket of any priority is overtaken for a bounded time only.

    Raises ValueError when the classes do not cover every prompt length exactly once.
    """

    classes: tuple[ClassSpec, ...]
    burst: BurstSpec = BurstSpec()
    queue_wait: float = 60.0
    short_reserve: float = 0.25
    ageing: float = 10.0

    def __post_init__(self) -> None:
        if len({spec.name for spec in self.classes}) != len(self.classes):
            raise ValueError("two classes have one name")
        bounds = [spec.max_prompt_tokens for spec in self.classes]
        if bounds.count(None) != 1:
            raise ValueError("exactly one class must take prompts of any length")
        if len(set(bounds)) != len(bounds):
            raise ValueError("two classes have one bound")


class BackendState(Enum):
    """What the scheduler may do with a backend: only READY ones get tickets."""

    READY = "ready"
    WARMING = "warming"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Backend:
    """One vLLM server as the scheduler sees it.

    `classes` names the pools it belongs to (empty: all of them). `weight` 0 means no new
    tickets. `limit` bounds its requests in flight. `prefill_rate` seeds the estimate, in prompt
    tokens per second.
    """

    name: str
    state: BackendState
    models: frozenset[str]
    classes: frozenset[str] = frozenset()
    limit: int = 64
    weight: float = 1.0
    prefill_rate: float = 10_000.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request waiting for a backend: counts and names, never text.

    `prompt_tokens` is exact unless the gateway had to send text (then an estimate).
    `deadline` is absolute; None means `Settings.queue_wait` after arrival. `avoid` names
    backends that have already failed this request. `prefix` chains block hashes of the prompt.
    """

    id: str
    model: str
    prompt_tokens: int
    max_tokens: int = 0
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    avoid: frozenset[str] = frozenset()
    prefix: tuple[int, ...] = field(default=(), repr=False)
