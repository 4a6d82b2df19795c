"""When requests come and how long they are: from a rate and a distribution to workload.Jobs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from math import inf
from random import Random

from bench.workload import Job

Sizes = Callable[[Random], int]

SIZES = "N, N@WEIGHT,N@WEIGHT, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"
"""How a distribution is written."""


class Rhythm(StrEnum):
    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"
    """Gamma-distributed gaps: burstier than Poisson when the variation is over 1."""
    ON_OFF = "on-off"
    """Poisson in bursts, silence between them; the mean rate is the asked one."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`rate` in requests per second, `variation` of gamma gaps, `on` and `off` in seconds."""

    rate: float
    rhythm: Rhythm = Rhythm.POISSON
    variation: float = 2.0
    on: float = 1.0
    off: float = 4.0

    def __post_init__(self) -> None:
        if min(self.rate, self.variation, self.on) <= 0 or self.off < 0:
            raise ValueError("rate, variation and the burst's length must be over 0")

    def times(self, random: Random) -> Iterator[float]:
        """Seconds from the start, without end."""
        at = 0.0
        while True:
            at += self._gap(random)
            yield self._with_pauses(at) if self.rhythm is Rhythm.ON_OFF else at

    def _gap(self, random: Random) -> float:
        match self.rhythm:
            case Rhythm.CONSTANT:
                return 1 / self.rate
            case Rhythm.GAMMA:
                square = self.variation**2
                return random.gammavariate(1 / square, square / self.rate)
            case Rhythm.ON_OFF:
                return random.expovariate(self.rate * (self.on + self.off) / self.on)
            case Rhythm.POISSON:
                return random.expovariate(self.rate)

    def _with_pauses(self, busy: float) -> float:
        """A time within the bursts alone, as a time in which the pauses pass too."""
        return busy + self.off * (busy // self.on)


def sizes(text: str) -> Sizes:
    """A distribution of token counts: see the command's help. Raises ValueError.

    `500` | `100@0.9,8000@0.1` (weighted) | `uniform:100:900` | `lognormal:MEDIAN:SIGMA`.
    """
    try:
        return _sizes(text)
    except ValueError as error:
        raise ValueError(
            f"--prompt and --output take {SIZES} of 1 and more tokens; not {text!r}"
        ) from error


def _sizes(text: str) -> Sizes:
    kind, _, rest = text.partition(":")
    match kind:
        case "uniform":
            low, high = (int(bound) for bound in rest.split(":"))
            if not 1 <= low <= high:
                raise ValueError("no range")
            return lambda random: random.randint(low, high)
        case "lognormal":
            median, sigma = (float(number) for number in rest.split(":"))
            if not (0 < median < inf and 0 <= sigma < inf):
                raise ValueError("no median, or no sigma")
            return lambda random: max(1, round(median * random.lognormvariate(0, sigma)))
    return _weighted(text)


def _weighted(text: str) -> Sizes:
    pairs = [part.partition("@") for part in text.split(",")]
    counts = [int(count) for count, _, _ in pairs]
    weights = [float(weight or 1) for _, _, weight in pairs]
    if min(counts) < 1 or min(weights) < 0 or not 0 < sum(weights) < inf:
        raise ValueError("no counts, or no weights")
    return lambda random: random.choices(counts, weights)[0]


def jobs(arrivals: Arrivals, prompt: Sizes, output: Sizes, *, seed: int) -> Iterator[Job]:
    """Requests without end; the same seed gives the same ones."""
    random = Random(seed)
    for at in arrivals.times(random):
        yield Job(at, prompt(random), output(random))


def limited(endless: Iterator[Job], *, count: int | None, duration: float | None) -> list[Job]:
    """The first `count`, and of these the ones that come within `duration` seconds."""
    first = islice(endless, count)
    if duration is None:
        return list(first)
    return list(takewhile(lambda job: job.at < duration, first))
