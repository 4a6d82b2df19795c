"""What an hour of an engine's memory asks for: the sign that was seen, the setting to change. Pure.

One sign, one remedy; a sign that explains another stands in its place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gateway.memory.usage import FULL, STRANDED, Usage

LEAST = 60
"""Readings that an hour must have to say anything: a minute's worth."""

OFTEN = 0.02
"""A share of the readings that is no accident: over a minute of an hour."""

IDLE = 0.4
"""A cache whose peak is below it is larger than the requests that are let in need."""

_RELEVANT_HITS = 0.2
_LOST_HITS = 0.5


class Sign(Enum):
    """What was seen."""

    PREEMPTING = "preempting"
    FULL = "full"
    STRANDED = "stranded"
    NOT_MEMORY = "not_memory"
    CACHE_LOST = "cache_lost"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Finding:
    """`setting` is what to change, `to` the value where one follows from the numbers."""

    sign: Sign
    seen: str
    setting: str
    to: str
    why: str

    def __str__(self) -> str:
        return f"{self.seen}: {self.setting} {self.to}, {self.why}"


def judge(backend: str, seats: int, now: Usage, before: Usage | None) -> tuple[Finding, ...]:
    """What the hour `now` asks for of an engine that may run `seats` requests at once; `before` is
    the hour before, where there was one."""
    if now.readings < LEAST:
        return ()
    pressed = tuple(_pressed(backend, seats, now))
    others = (
        _stranded(now),
        _not_memory(now),
        _cache_lost(backend, seats, now, before),
        None if pressed else _idle(backend, seats, now),
    )
    return (*pressed, *(finding for finding in others if finding is not None))


def _pressed(backend: str, seats: int, now: Usage) -> Iterator[Finding]:
    """Too many tokens at once. Preemptions say it more surely than a full cache."""
    if now.preemptions:
        yield Finding(
            Sign.PREEMPTING,
            f"{now.preemptions} requests were preempted and computed again",
            f"backends.{backend}.limit",
            str(_fitting(seats, now)),
            "so many fit with 5% to spare; or more memory at the next start: "
            "--gpu-memory-utilization, --kv-offloading-size",
        )
    elif now.full > OFTEN * now.readings:
        yield Finding(
            Sign.FULL,
            f"less than {1 - FULL:.0%} of the KV cache was free in {now.full / now.readings:.0%} "
            "of the readings",
            f"backends.{backend}.limit",
            str(_fitting(seats, now)),
            "so many fit with 5% to spare, in which a sudden long prompt finds room",
        )


def _stranded(now: Usage) -> Finding | None:
    if now.stranded <= OFTEN * now.readings:
        return None
    return Finding(
        Sign.STRANDED,
        f"requests waited in the engine beside {STRANDED:.0%} or more of free KV cache in "
        f"{now.stranded / now.readings:.0%} of the readings: the first of them did not fit there",
        "classes.<the one of long prompts>.limit",
        "half as many as run at once",
        "so that they wait in the gateway, where short ones pass them; or a pool of their own",
    )


def _not_memory(now: Usage) -> Finding | None:
    if now.seatless <= OFTEN * now.readings:
        return None
    return Finding(
        Sign.NOT_MEMORY,
        f"requests waited in the engine with over half of the KV cache free in "
        f"{now.seatless / now.readings:.0%} of the readings: memory is not what they wait for",
        "--max-num-batched-tokens",
        "higher at the next start",
        "or --max-num-seqs, when as many run as it lets in",
    )


def _cache_lost(backend: str, seats: int, now: Usage, before: Usage | None) -> Finding | None:
    """Sequences take the blocks that the prefix cache would have kept."""
    then = before.hit_share if before is not None else None
    if then is None or then < _RELEVANT_HITS or now.hit_share is None:
        return None
    if now.hit_share > _LOST_HITS * then or now.kv_peak <= FULL:
        return None
    return Finding(
        Sign.CACHE_LOST,
        f"{now.hit_share:.0%} of prompt tokens were in the prefix cache, {then:.0%} the hour "
        f"before, while the KV cache was full",
        f"backends.{backend}.limit",
        str(_fitting(seats, now)),
        "so that cached prefixes keep room; or --kv-offloading-size at the next start",
    )


def _idle(backend: str, seats: int, now: Usage) -> Finding | None:
    """All seats are taken, and the cache is far from full."""
    if now.kv_peak >= IDLE or now.running_peak < 0.9 * seats or not now.kv_peak:
        return None
    more = int(seats * min(2.0, (1 - STRANDED) / now.kv_peak))
    return Finding(
        Sign.IDLE,
        f"{now.running_peak} requests ran at once, as many as may, in {now.kv_peak:.0%} of the KV "
        "cache at most",
        f"backends.{backend}.limit",
        str(more),
        "and --max-num-seqs with it: there is memory for more",
    )


def _fitting(seats: int, now: Usage) -> int:
    """Requests whose tokens fill FULL of the cache, by what each took; one fewer than now, at
    least, because the present number was too many."""
    fewer = max(1, min(seats, max(1, now.running_peak)) - 1)
    if not now.busy:
        return fewer
    return max(1, min(fewer, int(FULL * now.busy / now.per_request)))
