"""Weighted measurements, and what is asked of them: count, mean, quantiles, shares.

A line of a sampled log stands for several requests, so everything here has weights.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Sample:
    """Seconds with their weights: 16 bytes for each, so a day of a busy gateway fits."""

    def __init__(self) -> None:
        self._values = array("d")
        self._weights = array("d")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float, weight: float) -> None:
        self._values.append(value)
        self._weights.append(weight)

    @property
    def weight(self) -> float:
        """How many requests the measurements stand for."""
        return float(_numbers(self._weights).sum())

    @property
    def mean(self) -> float | None:
        if not self._values:
            return None
        return float(np.average(_numbers(self._values), weights=_numbers(self._weights)))

    def share_within(self, bound: float) -> float | None:
        """The share of the requests whose value is at most the bound."""
        if not self._values:
            return None
        weights = _numbers(self._weights)
        return float(weights[_numbers(self._values) <= bound].sum() / weights.sum())

    def quantiles(self, shares: Sequence[float]) -> list[float] | None:
        """For each share, the smallest value that so many of the requests do not exceed."""
        if not self._values:
            return None
        values, reached = self.distribution()
        places = np.searchsorted(reached, np.asarray(shares) - 1e-12)
        return [float(values[min(place, len(values) - 1)]) for place in places]

    def distribution(self) -> tuple[Numbers, Numbers]:
        """The values in order, and the share of the requests up to each."""
        values, weights = _numbers(self._values), _numbers(self._weights)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order])
        return values[order], reached / reached[-1] if len(reached) else reached


def _numbers(values: "array[Any]") -> Numbers:
    return np.array(values, dtype=np.float64)
