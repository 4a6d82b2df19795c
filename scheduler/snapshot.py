"""What the scheduler shows of itself: counts for metrics, frozen at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolView:
    """One class's queue and the pool it feeds. Limits are requests in flight."""

    service_class: str
    queued: int
    queued_tokens: int
    in_flight: int
    limit_configured: int
    limit_effective: int


@dataclass(frozen=True, slots=True)
class BackendView:
    """One backend's ledger. `prefill_backlog` is tokens whose first token has not come."""

    name: str
    in_flight: int
    limit: int
    prefill_backlog: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    pools: tuple[PoolView, ...]
    backends: tuple[BackendView, ...]
    draining: bool
