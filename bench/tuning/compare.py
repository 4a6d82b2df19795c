"""Whether the chosen flags are better than the defaults, or only look so.

The best of many noisy measurements looks better than it is. So both are measured again, in turn, on
requests that the search has not seen; what counts is the ratio within each round. Not here: the
search.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean, stdev

from bench.tuning.objective import Aim, Window
from bench.tuning.search import Evaluator
from bench.tuning.space import Flags

UNSEEN = 1_000_000
"""The number of the first window that no search has."""
_T95 = (inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95%, by degrees of freedom; more rounds than that are as good as the last."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is chosen over defaults, of the TTFT's p99 or of the goodput: the geometric mean of
    the rounds, with its 95% interval."""

    aim: Aim
    defaults: tuple[Window, ...]
    chosen: tuple[Window, ...]
    ratio: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """Whether the whole interval lies on the better side."""
        return self.high < 1.0 if self.aim is Aim.TTFT else self.low > 1.0


async def compare(evaluator: Evaluator, chosen: Flags, aim: Aim, rounds: int) -> Comparison:
    """Both engines run at the same time, so that each round meets the same machine; the one that
    is not measured is idle. Who goes first changes from round to round."""
    before: list[Window] = []
    after: list[Window] = []
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(evaluator.started(None))
        new = await stack.enter_async_context(evaluator.started(chosen))
        for number in range(UNSEEN, UNSEEN + rounds):
            order = [(old, before), (new, after)]
            for engine, windows in order if number % 2 else reversed(order):
                windows.append(await engine.window(number))
    return judge(aim, before, after)


def judge(aim: Aim, before: Sequence[Window], after: Sequence[Window]) -> Comparison:
    """A round in which either has nothing to compare decides nothing; without two others the
    interval has no end."""
    pairs = [(_figure(aim, b), _figure(aim, a)) for b, a in zip(before, after, strict=True)]
    logs = [log(new / old) for old, new in pairs if old > 0 and new > 0]
    mean = fmean(logs) if logs else 0.0
    half = inf
    if len(logs) > 1:
        half = _T95[min(len(logs) - 1, len(_T95) - 1)] * stdev(logs) / len(logs) ** 0.5
    low, high = (exp(mean - half), exp(mean + half) if half < inf else inf)
    return Comparison(aim, tuple(before), tuple(after), exp(mean), low, high)


def _figure(aim: Aim, window: Window) -> float:
    if aim is Aim.TTFT:
        return window.p99
    return window.good / window.seconds if window.seconds else 0.0
