"""What the scheduler shows of itself: counts for metrics, frozen at one moment."""

from dataclasses import dataclass

from scheduler.books import Books


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
    """One backend's ledger. `prefill_backlog` is tokens whose first token has not come.

    `limit` is the effective one; `prefill_rate` is the estimate, in prompt tokens per second, and
    `itl` that of the seconds between two output tokens (0.0: nothing was reported yet).
    """

    name: str
    in_flight: int
    limit: int
    prefill_backlog: int
    prefill_rate: float = 0.0
    itl: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    pools: tuple[PoolView, ...]
    backends: tuple[BackendView, ...]
    draining: bool


def view(books: Books) -> Snapshot:
    """The counts of this moment; costs a step per class and backend."""
    pools = tuple(
        PoolView(
            service_class=pool.name,
            queued=len(pool.queue),
            queued_tokens=pool.queue.held.tokens,
            in_flight=pool.in_flight,
            limit_configured=pool.limit.configured,
            limit_effective=pool.limit.effective,
        )
        for pool in books.pools
    )
    backends = tuple(
        BackendView(
            name=member.backend.name,
            in_flight=member.in_flight,
            limit=member.limit.effective if member.backend.limit else 0,
            prefill_backlog=member.prefill_backlog,
            prefill_rate=1.0 / member.cost.per_token,
            itl=member.pace.itl,
        )
        for member in books.fleet
    )
    return Snapshot(pools, backends, books.draining)


def describe(books: Books) -> str:
    """The counts an operator wants, in one line."""
    pools = ", ".join(
        f"{p.name}: {len(p.queue)} queued {p.in_flight}/{p.limit.effective} in flight"
        for p in books.pools
    )
    backends = ", ".join(
        f"{m.backend.name}: {m.backend.state.value} {m.in_flight}/{m.limit.effective}"
        for m in books.fleet
    )
    state = " draining" if books.draining else ""
    return f"<Scheduler{state} [{pools}] [{backends}]>"
