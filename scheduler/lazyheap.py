"""A priority queue of ids that can also remove from the middle.

Removal only forgets the id; its heap entry is dropped when it surfaces, or in a sweep once
the dropped ones outnumber the live ones, so memory and cost stay proportional to what lives.
"""

from heapq import heapify, heappop, heappush
from math import inf

_SWEEP_FLOOR = 64


class LazyHeap:
    """Ids by ascending (key, order of insertion). Each id is in the heap at most once."""

    __slots__ = ("_heap", "_live", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._live: dict[str, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def push(self, item: str, key: float) -> bool:
        """Add an id; False if it is certainly not the first one now."""
        heap, live, serial = self._heap, self._live, self._serial + 1
        self._serial = live[item] = serial
        heappush(heap, (key, serial, item))
        top = heap[0]
        return top[1] == serial or live.get(top[2]) != top[1]

    def discard(self, item: str) -> None:
        live = self._live
        if live.pop(item, None) is not None and len(self._heap) > 2 * len(live) + _SWEEP_FLOOR:
            self._sweep()

    def none_before(self, key: float) -> bool:
        """Whether certainly no key is smaller; False also where only a ghost's is."""
        return not self._heap or self._heap[0][0] >= key

    def due(self, key: float) -> str | None:
        """The first id, if its key is `key` or less."""
        if not self._heap or self._heap[0][0] > key:
            return None
        first = self.first()
        return first[1] if first is not None and first[0] <= key else None

    def first(self) -> tuple[float, str] | None:
        """The smallest key and its id, or None when empty."""
        heap, live = self._heap, self._live
        while heap:
            key, serial, item = heap[0]
            if live.get(item) == serial:
                return key, item
            heappop(heap)
        return None

    def least(self) -> float:
        """The smallest key; infinite when empty."""
        first = self.first()
        return inf if first is None else first[0]

    def _sweep(self) -> None:
        live = self._live
        self._heap = [entry for entry in self._heap if live.get(entry[2]) == entry[1]]
        heapify(self._heap)
