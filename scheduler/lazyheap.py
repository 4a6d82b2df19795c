"""A priority queue whose items may leave from the middle.

An item that leaves says so itself (`gone`); its entry is dropped when it surfaces, or in a sweep
once the dropped ones outnumber the live ones, so memory and cost stay proportional to what lives,
and one flag serves every heap that the item is in.

Tickets mostly come in the order of their keys. Those that do stand in a line, where taking the
first costs the same however long it is; only the others are in a heap.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from typing import Generic, Protocol, TypeVar

_SWEEP_FLOOR = 64


class Leaver(Protocol):
    """What a heap may hold: set `gone` once and for all, then tell each heap with `left`."""

    gone: bool


Item = TypeVar("Item", bound=Leaver)


class LazyHeap(Generic[Item]):
    """Items by ascending (key, order of insertion). Each is in the heap at most once."""

    __slots__ = ("_ghosts", "_heap", "_line", "_serial")

    def __init__(self) -> None:
        self._line: deque[tuple[float, int, Item]] = deque()
        self._heap: list[tuple[float, int, Item]] = []
        self._serial = 0
        self._ghosts = 0

    def __len__(self) -> int:
        return len(self._line) + len(self._heap) - self._ghosts

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in chain(self._line, self._heap) if not item.gone)

    def push(self, item: Item, key: float) -> bool:
        """Add an item; False if it is certainly not the first one now."""
        line, serial = self._line, self._serial + 1
        self._serial = serial
        if not line or key >= line[-1][0]:
            line.append((key, serial, item))
            before = line[0][2]
        else:
            heappush(self._heap, (key, serial, item))
            before = self._heap[0][2]
        return before is item or before.gone

    def left(self) -> None:
        """One more of its items is gone."""
        ghosts = self._ghosts + 1
        self._ghosts = ghosts
        if 2 * ghosts > len(self._line) + len(self._heap) + _SWEEP_FLOOR:
            self._line = deque([entry for entry in self._line if not entry[2].gone])
            self._heap = [entry for entry in self._heap if not entry[2].gone]
            heapify(self._heap)
            self._ghosts = 0

    def take_first(self) -> None:
        """Take out the item that `first` has just said, marked as gone by now."""
        line, heap = self._line, self._heap
        if heap and (not line or heap[0] < line[0]):
            heappop(heap)
        else:
            line.popleft()

    def due(self, key: float) -> Item | None:
        """The first item, if its key is `key` or less."""
        first = self.first()
        return first[2] if first is not None and first[0] <= key else None

    def least(self) -> float:
        """The smallest key; infinite when empty."""
        first = self.first()
        return inf if first is None else first[0]

    def first(self) -> tuple[float, int, Item] | None:
        """The smallest key, its place in the order of insertion, and its item."""
        line, heap = self._line, self._heap
        while line and line[0][2].gone:
            line.popleft()
            self._ghosts -= 1
        while heap and heap[0][2].gone:
            heappop(heap)
            self._ghosts -= 1
        if heap and (not line or heap[0] < line[0]):
            return heap[0]
        return line[0] if line else None
