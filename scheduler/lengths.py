"""How long prompts have been lately: exact counts in buckets, in which older ones count less.

Knows lengths and times only; what follows from them is `tuning`'s.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp

EDGES = tuple(sorted({round(2 ** (step / 8)) for step in range(8 * 20 + 1)}))
"""The longest prompt of each bucket, 9% apart, to a million tokens. Longer ones count as that."""
_HEAVIEST = 1e9


@dataclass(frozen=True, slots=True)
class Distribution:
    """Shares, by bucket: of the prompts, and of their tokens, that are in it or a shorter one."""

    prompts: tuple[float, ...]
    tokens: tuple[float, ...]
    mean: float

    def work_up_to(self, bound: float) -> float:
        """The share of all tokens that is in prompts of at most so many."""
        return _at(self.tokens, bound)

    def longer_than(self, bound: float) -> float:
        """The share of the prompts that is longer."""
        return 1.0 - _at(self.prompts, bound)

    def mean_longer_than(self, bound: float) -> float:
        """The mean length of those; 0.0 without any."""
        share = self.longer_than(bound)
        return self.mean * (1.0 - self.work_up_to(bound)) / share if share > 1e-9 else 0.0

    def quantile(self, share: float) -> int:
        """The least bound that all but this share of the prompts keep to."""
        return EDGES[bisect_left(self.prompts, 1.0 - share - 1e-9)]


class Lengths:
    """Counts whose weight falls by 1/e each `memory` seconds."""

    __slots__ = ("_counts", "_memory", "_since", "_tokens")

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._since = 0.0
        self._counts = [0.0] * len(EDGES)
        self._tokens = [0.0] * len(EDGES)

    def add(self, tokens: int, now: float) -> None:
        # What comes later weighs more: nothing that came before has to be touched.
        weight = exp(min((now - self._since) / self._memory, 700.0))
        if weight > _HEAVIEST:
            self._rescale(now)
            weight = 1.0
        index = min(bisect_left(EDGES, tokens), len(EDGES) - 1)
        self._counts[index] += weight
        self._tokens[index] += weight * tokens

    def seen(self, now: float) -> float:
        """How many prompts are remembered, each by its weight."""
        return sum(self._counts) * exp((self._since - now) / self._memory)

    def distribution(self) -> Distribution:
        """Of what is remembered; there must be something."""
        prompts, tokens = _shares(self._counts), _shares(self._tokens)
        return Distribution(prompts, tokens, sum(self._tokens) / sum(self._counts))

    def _rescale(self, now: float) -> None:
        keep = exp(max((self._since - now) / self._memory, -700.0))
        self._counts = [count * keep for count in self._counts]
        self._tokens = [count * keep for count in self._tokens]
        self._since = now


def _shares(amounts: Sequence[float]) -> tuple[float, ...]:
    total = sum(amounts)
    return tuple(amount / total for amount in accumulate(amounts))


def _at(shares: Sequence[float], bound: float) -> float:
    """The share at a bound; within a bucket as if its prompts were spread evenly."""
    index = bisect_left(EDGES, bound)
    if index >= len(EDGES):
        return 1.0
    before, low = (shares[index - 1], EDGES[index - 1]) if index else (0.0, 0)
    return before + (shares[index] - before) * (bound - low) / (EDGES[index] - low)
