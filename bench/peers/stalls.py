"""How long a peer's event loop is kept from its work, told in Prometheus' format as Forebay does.

The same figure needs the same ruler: a timer twenty times a second, and how late it comes.
"""

import asyncio
from bisect import bisect_left
from time import monotonic

METRIC = "forebay_loop_stall_seconds"
INTERVAL = 0.05
TIMER_ERROR = 0.001
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Stalls:
    """Counts of the samples by lateness."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            due = monotonic() + INTERVAL
            await asyncio.sleep(INTERVAL)
            late = max(0.0, monotonic() - due - TIMER_ERROR)
            self._counts[bisect_left(BUCKETS, late)] += 1

    def text(self) -> str:
        lines, count = [], 0
        for bound, number in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            count += number
            lines.append(f'{METRIC}_bucket{{le="{bound}"}} {count}\n')
        return "".join(lines)
