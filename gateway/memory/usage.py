"""One engine's memory over an hour as numbers: sums and peaks of readings, none of them kept. Pure.

A paged KV cache has no fragmentation between sequences: any free block serves any of them, and only
the last block of each is partly empty. What it has in its place is memory that is free and of no
use: the engine takes waiting requests in their order, and the next one only when its whole prompt
fits. A reading in which requests wait beside free memory and free seats is one of those.
"""

from dataclasses import dataclass, field

from backends.types import Load

FULL = 0.95
"""Source: at least 5% free, for sudden long text."""

STRANDED = 0.15
"""Source: 15% of memory lost to fragmentation is too much. Here: free, but of no use."""

PLENTY = 0.5
"""With so much free it is not memory that a prompt waits for."""


@dataclass(slots=True)
class Usage:
    """Sums over the readings since `clear`. `full`, `stranded` and `seatless` count readings: less
    than 5% free; waiting beside 15 to 50% free and free seats; waiting with over half free.

    `per_request` is the sum of KV usage per running request, over the `busy` readings, those with
    the cache more than half used.
    """

    readings: int = 0
    full: int = 0
    stranded: int = 0
    seatless: int = 0
    busy: int = 0
    kv_sum: float = 0.0
    kv_peak: float = 0.0
    running_peak: int = 0
    per_request: float = 0.0
    preemptions: int = 0
    queries: int = 0
    hits: int = 0
    _last: Load | None = field(default=None, repr=False)

    def saw(self, load: Load, seats: int) -> None:
        """Add a reading of an engine that may run `seats` requests at once. The counters of one
        that began anew count from nothing."""
        free = 1.0 - load.kv_usage
        self.readings += 1
        self.full += load.kv_usage > FULL
        if load.waiting:
            self.seatless += free > PLENTY
            self.stranded += STRANDED <= free <= PLENTY and load.running < seats
        if load.running and load.kv_usage > PLENTY:
            self.busy += 1
            self.per_request += load.kv_usage / load.running
        self.kv_sum += load.kv_usage
        self.kv_peak = max(self.kv_peak, load.kv_usage)
        self.running_peak = max(self.running_peak, load.running)
        self._count(load)

    def clear(self) -> "Usage":
        """What was seen since the last time; the next hour begins."""
        seen = Usage(**{name: getattr(self, name) for name in _NUMBERS})
        for name in _NUMBERS:
            setattr(self, name, type(getattr(self, name))())
        return seen

    @property
    def kv_mean(self) -> float:
        return self.kv_sum / self.readings if self.readings else 0.0

    @property
    def hit_share(self) -> float | None:
        """Of the prompt tokens that were looked up in the prefix cache, those found there."""
        return self.hits / self.queries if self.queries else None

    def _count(self, load: Load) -> None:
        before, self._last = self._last, load
        if before is None:
            return
        anew = load.preemptions < before.preemptions or load.prefix_queries < before.prefix_queries
        zero = Load(load.backend, load.at, 0, 0, 0.0, 0, 0)
        since = zero if anew else before
        self.preemptions += load.preemptions - since.preemptions
        self.queries += load.prefix_queries - since.prefix_queries
        self.hits += load.prefix_hits - since.prefix_hits


_NUMBERS = tuple(name for name in Usage.__dataclass_fields__ if not name.startswith("_"))
