"""The settings that scenarios compare: ours, and what gateways offer today.

A gateway of today sends every request on at once: one class without a limit, and a rule that
picks the engine. `BEST_OTHER` names the rules that peers offer; least outstanding prompt
tokens is in no peer of ours and is reported beside them.
"""

from dataclasses import replace
from math import inf

from scheduler.model import AdaptSpec, BurstSpec, ClassSpec, Placement, Settings

UNBOUNDED = 1_000_000_000
NO_BURST = BurstSpec(in_flight=None)
NOT_LATE = AdaptSpec(late=None)

PEERS = (Placement.ROUND_ROBIN, Placement.LEAST_REQUESTS, Placement.POWER_OF_TWO)
OTHERS = (*PEERS, Placement.LEAST_TOKENS)


def today(placement: Placement) -> Settings:
    """A gateway that forwards at once and only picks the engine."""
    everything = ClassSpec("all", queue_limit=UNBOUNDED, ttft_target=inf)
    return Settings(
        classes=(everything,),
        queue_wait=UNBOUNDED,
        burst=NO_BURST,
        adapt=NOT_LATE,
        placement=placement,
    )


def forebay(*, short: int = 1024, short_ttft: float = 0.6, burst: BurstSpec = NO_BURST) -> Settings:
    """Our defaults with a patient queue, so that every request of a comparison is served."""
    classes = (
        ClassSpec("short", short, queue_limit=UNBOUNDED, ttft_target=short_ttft),
        ClassSpec("long", queue_limit=UNBOUNDED),
    )
    return Settings(classes=classes, queue_wait=UNBOUNDED, burst=burst)


def fifo() -> Settings:
    """First come, first served on whatever there is; with one engine every peer does that."""
    return replace(today(Placement.LEAST_REQUESTS))
