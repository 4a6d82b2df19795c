"""Counts that cost little to move: plain numbers by label values, kept by the process that counts.

Lives here: counters and histograms, their bound, how they travel to another process, and their
text for Prometheus. Not here: which metrics there are (`metrics`). The Prometheus library's own
would cost a request more than all of its HTTP parsing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MAX_ROWS = 1_000
"""Of one metric. Further label values are counted together, as OVERFLOW: memory is bounded."""
OVERFLOW = "other"

Labels = tuple[str, ...]
Exported = list[tuple[Labels, list[float]]]
"""Rows as plain data: what orjson makes of it, where tuples are lists, `merge` takes back."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Series:
    """One metric: a row of numbers for each combination of label values."""

    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, width: int) -> None:
        self.name = name
        self._text = text
        self._labels = tuple(labels)
        self._empty = [0.0] * width
        self._rows: dict[Labels, list[float]] = {}
        if not labels:
            self._rows[()] = self._empty.copy()

    def rows(self) -> Exported:
        """What is counted now: the rows themselves, to be read at once."""
        return list(self._rows.items())

    def export(self) -> Exported:
        """What was counted since the last export; from now on it is not counted here any more."""
        moved = [(labels, row) for labels, row in self._rows.items() if any(row)]
        self._rows = {} if self._labels else {(): self._empty.copy()}
        return moved

    def merge(self, exported: Iterable[Sequence[Any]]) -> None:
        """Add what another process has counted."""
        for labels, numbers in exported:
            row = self._row(tuple(labels))
            for place, number in enumerate(numbers):
                row[place] += number

    def head(self) -> str:
        """The lines before the samples."""
        return f"# HELP {self.name} {self._text}\n# TYPE {self.name} {self.kind}\n"

    def lines(self) -> Iterator[str]:
        """The samples' text, a row at a time."""
        for labels, row in list(self._rows.items()):
            pairs = zip(self._labels, labels, strict=True)
            named = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
            yield self._samples(named, row)

    def _row(self, labels: Labels) -> list[float]:
        row = self._rows.get(labels)
        if row is None:
            if len(self._rows) >= MAX_ROWS:
                labels = (OVERFLOW,) * len(self._labels)
            row = self._rows.setdefault(labels, self._empty.copy())
        return row

    def _samples(self, labels: str, row: list[float]) -> str:
        raise NotImplementedError


class Counter(Series):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels, width=1)

    def inc(self, *labels: str, by: float = 1.0) -> None:
        row = self._rows.get(labels) or self._row(labels)
        row[0] += by

    def _samples(self, labels: str, row: list[float]) -> str:
        return f"{self.name}{{{labels}}} {row[0]}\n" if labels else f"{self.name} {row[0]}\n"


class Histogram(Series):
    """How often a value lay in which bucket; `buckets` are their upper bounds, rising.

    A row has the counts of the buckets, that of the values above them all, and the values' sum.
    """

    kind = "histogram"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> None:
        super().__init__(name, text, labels, width=len(buckets) + 2)
        self._buckets = tuple(buckets)
        self._bounds = [*map(str, buckets), "+Inf"]

    def observe(self, labels: Labels, value: float) -> None:
        row = self._rows.get(labels) or self._row(labels)
        row[bisect_left(self._buckets, value)] += 1.0
        row[-1] += value

    def add(self, labels: Labels, numbers: Sequence[float]) -> None:
        """Add a row that was counted elsewhere: counts by bucket, then the values' sum."""
        row = self._rows.get(labels) or self._row(labels)
        for place, number in enumerate(numbers):
            if number:
                row[place] += number

    def _samples(self, labels: str, row: list[float]) -> str:
        start = f"{self.name}_bucket{{{labels}{',' if labels else ''}le="
        count, text = 0.0, []
        for bound, number in zip(self._bounds, row, strict=False):
            count += number
            text.append(f'{start}"{bound}"}} {count}\n')
        labels = f"{{{labels}}}" if labels else ""
        text.append(f"{self.name}_count{labels} {count}\n{self.name}_sum{labels} {row[-1]}\n")
        return "".join(text)


def moved(series: Sequence[Series]) -> dict[str, Any]:
    """Export them all, by name; those without a count are left out."""
    return {one.name: rows for one in series if (rows := one.export())}
