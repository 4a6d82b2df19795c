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
    limits alone). The queue is bounded by tickets (`queue_limit`), by prompt tokens and by
    body bytes, for the class and for each of its tenants. A backend with a backlog takes a ticket
    of the smallest class only while its predicted time to first token stays within `ttft_target`.
    `spill` names classes whose backends this class may use while they are idle: while none of
    their own tickets wait, no prompt is in its prefill there, and `Settings.spill_reserve` of
    their slots stay free of strangers.
    """

    name: str
    max_prompt_tokens: int | None = None
    limit: int | None = None
    queue_limit: int = 1024
    ttft_target: float = 0.6
    queue_tokens: int | None = None
    queue_bytes: int | None = None
    tenant_queue_limit: int | None = None
    tenant_queue_tokens: int | None = None
    tenant_queue_bytes: int | None = None
    spill: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BurstSpec:
    """When long prompts halve a pool's concurrency limit, and how it recovers.

    A *burst prompt* is longer than `prompt_tokens`. When one arrives, the limit of its class's
    pool is halved (floor: one request per backend) if each backend of the pool has, on average,
    `in_flight` burst prompts or more whose prefill is not over; or if `prompts` of them, or
    burst prompts of `tokens` tokens together, have arrived within `window` seconds (None: not
    counted). That happens at most once per window. `whole_pool` halves the pools of all
    classes with it; otherwise shorter prompts keep theirs.
    After `clean_interval` seconds without a trigger a limit grows by one `recovery_step`
    (a share of the configured limit, at least 1) per interval until it is whole again.
    A prompt's length here is what the engine has to compute of it.
    """

    prompt_tokens: int = 2048
    in_flight: int | None = 1
    window: float = 1.0
    clean_interval: float = 1.0
    recovery_step: float = 0.25
    prompts: int | None = None
    tokens: int | None = None
    whole_pool: bool = False


@dataclass(frozen=True, slots=True)
class AdaptSpec:
    """When a single backend's limit is halved, and how it recovers: as a pool's, but slowly.

    It is halved when its engine preempts or refuses, and when `late` first tokens within `window`
    seconds come later than the prefills before them explain, by more than their class's
    `ttft_target` (None: not counted). docs/adr/adaptive-limits.md has the simulations behind it.
    """

    window: float = 1.0
    clean_interval: float = 2.0
    recovery_step: float = 0.03
    late: int | None = 3


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """How long prompts are held back so that shorter ones find an engine open.

    A prompt of more than `step_tokens` (vLLM's `max_num_batched_tokens`) *blocks*: it takes
    whole engine steps, and what comes after it waits for its end. A blocking prompt goes to a
    backend that also serves the smallest class only if a short prompt that came right after it
    would still find a backend open within `tolerance` seconds. That rule yields to a weaker
    one, openings spread evenly over the time that the prompt takes, for tickets that have
    waited `patience` times their own prefill, and for all of them while the larger classes'
    load exceeds `fill` of what all backends but one can do.
    Nothing is held unless `expected` short prompts or more are likely to come while it runs.
    And it yields to age alone when the class has had no backend for twice that time.
    `ahead` is how soon, in seconds, a backend's blocking prompt must be over for it to be sent
    more of a larger class: it hides the network; an engine step, where that is longer, counts
    instead. A backend without one is sent more while its
    backlog is less than one full step, so that its steps stay full.
    """

    step_tokens: int = 2048
    tolerance: float = 0.03
    patience: float = 2.8
    fill: float = 0.9
    expected: float = 1.0
    ahead: float = 0.02


@dataclass(frozen=True, slots=True)
class AffinitySpec:
    """Which backend holds which prompt prefix, as learned from our own dispatches.

    `block_tokens` is the size of the blocks that `Ticket.prefix` hashes; at most `blocks` of
    them are remembered for each backend, each for `memory` seconds after its last use, and only
    as long as the backend has not had to store `Backend.kv_tokens` since. 0 blocks: no affinity.
    `session` prefers the backend of a session's last ticket as if it held the whole prompt.
    """

    block_tokens: int = 16
    blocks: int = 16_384
    memory: float = 300.0
    session: bool = False


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """A tenant's share between waiting tenants, relative to the others' (default 1.0)."""

    name: str
    weight: float = 1.0


class Placement(Enum):
    """How a backend is chosen. All but the first are for comparison with other gateways."""

    PREDICTED = "predicted"
    ROUND_ROBIN = "round_robin"
    POWER_OF_TWO = "power_of_two"
    LEAST_REQUESTS = "least_requests"
    LEAST_TOKENS = "least_tokens"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator may change while running.

    `queue_wait` is how long a ticket without a deadline may queue. `short_reserve` is the share
    of a backend's slots that only the smallest class may use where the backend serves several.
    `ageing` is the head start, in seconds of queueing, that one priority step gives within
    a tenant and that each class has over the next larger one: whatever is overtaken is
    overtaken for a bounded time only. A class that is served uses up its age: smaller classes
    stand back for one ticket per `ageing` seconds, not for a whole queue of old ones.
    `spill_reserve` is the share of a backend's slots that classes which only spill over to it
    leave free. `kv_reserve` is the share of an engine's KV cache that must be free before it gets
    a prompt of a larger class. `class_by_uncached` sorts by the tokens that no backend's prefix
    cache is known to hold.

    Raises ValueError when the classes do not cover every prompt length exactly once.
    """

    classes: tuple[ClassSpec, ...]
    burst: BurstSpec = BurstSpec()
    adapt: AdaptSpec = AdaptSpec()
    queue_wait: float = 60.0
    short_reserve: float = 0.25
    ageing: float = 10.0
    spill_reserve: float = 0.5
    kv_reserve: float = 0.05
    class_by_uncached: bool = False
    hold: HoldSpec = HoldSpec()
    affinity: AffinitySpec = AffinitySpec()
    tenants: tuple[TenantSpec, ...] = ()
    placement: Placement = Placement.PREDICTED

    def __post_init__(self) -> None:
        if len({spec.name for spec in self.classes}) != len(self.classes):
            raise ValueError("two classes have one name")
        bounds = [spec.max_prompt_tokens for spec in self.classes]
        if bounds.count(None) != 1:
            raise ValueError("exactly one class must take prompts of any length")
        if len(set(bounds)) != len(bounds):
            raise ValueError("two classes have one bound")
        names = {spec.name for spec in self.classes}
        if not all(names.issuperset(spec.spill) for spec in self.classes):
            raise ValueError("a class spills over to one that does not exist")
        if any(tenant.weight <= 0.0 for tenant in self.tenants):
            raise ValueError("a tenant's weight must be positive")


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
    tickets; otherwise predicted times count divided by it. `limit` bounds its requests in
    flight; at 0 (all slots are other gateways' now) its tickets wait, where weight 0 would send
    them elsewhere. `prefill_rate` seeds the estimate, in prompt tokens per second. `long_chunk` is
    vLLM's `long_prefill_token_threshold`: how much of a long prompt goes into one step, so that
    short ones need not wait for its end (0: long prompts take whole steps). `kv_tokens` is the
    size of its KV cache (0: unknown; then cached prefixes are forgotten by time alone).
    """

    name: str
    state: BackendState
    models: frozenset[str]
    classes: frozenset[str] = frozenset()
    limit: int = 64
    weight: float = 1.0
    prefill_rate: float = 10_000.0
    long_chunk: int = 0
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request waiting for a backend: counts and names, never text.

    `prompt_tokens` is exact unless the gateway had to send text (then an estimate).
    `deadline` is the absolute time up to which it may queue; None means `Settings.queue_wait`
    after arrival. `answer_by` is the absolute time by which its first token must come (a
    client's own timeout): it expires as soon as no backend could still make that. `avoid` names
    backends that have already failed this request. `prefix` chains hashes of the prompt's full
    blocks. `body_bytes` is what the gateway holds for it while it queues.
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
    answer_by: float | None = None
    session: str = ""
    body_bytes: int = 0
