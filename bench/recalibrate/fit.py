"""From logged requests to an engine's costs. Pure.

What a request waited, and what its tokens took, is linear in the costs when it is known what else
the engine did meanwhile:

    sent to first token   overhead + steps + all prompt tokens read meanwhile + the answers decoded
                          in those steps
    a further token       a step + the answers decoded in it + prompt tokens read meanwhile

Prompts whose prefix was cached count in full, so the fitted cost is one of tokens as they come,
with the share of them that caches spare.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log
from random import Random
from statistics import median
from typing import Any

import numpy

from bench.calibrate.fit import Fitted, solve
from bench.engine import EngineSpec
from bench.recalibrate.log import NothingLogged, Seen
from bench.recalibrate.occupancy import Occupancy

LEAST = 30
"""Requests of each kind that a fit needs."""

MOST = 4000
"""Requests of each kind that it takes."""

LONG_ANSWER = 8
"""Tokens: of shorter answers the time for each is not known well."""

ALONE = 0.5
"""A prompt tells of prefill while others read beside it are less than this share of its own."""

OUTLIER = 2.0
"""A time so many times longer or shorter than fitted is of something else: a cached prompt, a
client that does not read."""

HANDFUL, HANDFULS = 24, 40
"""Rows of a first, rough fit, and how many of these are made."""

HELD_OUT = 5
"""Every so-manieth row is not fitted, but judges the fit."""


@dataclass(frozen=True, slots=True)
class Row:
    """How often each of bench.calibrate.fit.COSTS was paid in `seconds`."""

    backend: str
    costs: tuple[float, float, float, float, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Learned:
    """`error` is the median relative error over rows that were not fitted; `backends` have how
    much slower than the fit each one is, 1 for as fast."""

    fitted: Fitted
    rows: int
    error: float
    backends: dict[str, float]


def learn(parts: Sequence[Sequence[Seen]], limits: EngineSpec) -> Learned:
    """Raises NothingLogged when there is too little to fit."""
    prefills, decodes = [], []
    for part in parts:
        for backend in sorted({seen.backend for seen in part}):
            mine = [seen for seen in part if seen.backend == backend]
            occupancy = Occupancy(mine)
            prefills += list(_prefills(mine, occupancy, limits))
            decodes += list(_decodes(mine, occupancy))
    if min(len(prefills), len(decodes)) < LEAST:
        raise NothingLogged(
            f"{len(prefills)} streams tell of prefill and {len(decodes)} of decoding, of each "
            f"{LEAST} are needed: streamed answers of {LONG_ANSWER} tokens or more"
        )
    rows = _as_many(prefills, decodes)
    fitted_rows = [row for number, row in enumerate(rows) if number % HELD_OUT]
    held_out = rows[::HELD_OUT]
    rough = _rough(fitted_rows, limits)
    kept = [row for row in fitted_rows if 1 / OUTLIER < _ratio(row, rough) < OUTLIER]
    fitted = _solved(kept, limits)
    slower = {
        name: round(median(_ratio(row, fitted) for row in rows if row.backend == name), 3)
        for name in sorted({row.backend for row in rows})
    }
    error = median(abs(1 / _ratio(row, fitted) - 1) for row in held_out)
    return Learned(fitted, len(kept), error, slower)


def _solved(rows: Sequence[Row], limits: EngineSpec) -> Fitted:
    return solve([row.costs for row in rows], [row.seconds for row in rows], limits)


def _rough(rows: Sequence[Row], limits: EngineSpec) -> Fitted:
    """Of the fits of some handfuls the one that half of all rows are nearest to: a least square
    would bend to what is of something else, were it one row in ten."""
    random = Random(1)
    fits = [_solved(random.sample(rows, HANDFUL), limits) for _ in range(HANDFULS)]
    return min(fits, key=lambda one: median(abs(log(_ratio(row, one))) for row in rows))


def _ratio(row: Row, fitted: Fitted) -> float:
    """Measured over modelled."""
    spec = fitted.spec
    costs = (
        fitted.overhead,
        spec.step_base,
        spec.prefill_per_token,
        spec.attention,
        spec.decode_per_seq,
    )
    return row.seconds / max(sum(c * n for c, n in zip(costs, row.costs, strict=True)), 1e-9)


def _prefills(requests: Sequence[Seen], occupancy: Occupancy, limits: EngineSpec) -> Iterator[Row]:
    mine = [r for r in requests if r.first is not None and r.first > r.sent]
    sent, first = _times(mine, "sent"), _times(mine, "first")
    tokens, decoding = occupancy.prefilled(sent, first), occupancy.decoding(sent, first)
    for request, read, beside in zip(mine, tokens, decoding, strict=True):
        if read > (1 + ALONE) * request.prompt:
            continue
        # Beside answers there is a step under way when it comes: on average half of one to wait.
        steps = ceil(read / limits.max_num_batched_tokens) + 0.5 * min(1.0, float(beside))
        pairs = request.prompt * request.prompt / 2
        costs = (1.0, steps, float(read), pairs, float(beside) * steps)
        yield Row(request.backend, costs, (request.first or 0.0) - request.sent)


def _decodes(requests: Sequence[Seen], occupancy: Occupancy) -> Iterator[Row]:
    mine = [
        r for r in requests if r.first is not None and r.output > LONG_ANSWER and r.ended > r.first
    ]
    first, ended = _times(mine, "first"), _times(mine, "ended")
    tokens, decoding = occupancy.prefilled(first, ended), occupancy.decoding(first, ended)
    for request, read, together in zip(mine, tokens, decoding, strict=True):
        further = request.output - 1
        context = (request.prompt + request.output / 2) * float(together)
        costs = (0.0, 1.0, float(read) / further, context, float(together))
        yield Row(request.backend, costs, (request.ended - (request.first or 0.0)) / further)


def _times(requests: Sequence[Seen], name: str) -> Any:
    return numpy.array([getattr(request, name) for request in requests], dtype=float)


def _as_many(prefills: list[Row], decodes: list[Row]) -> list[Row]:
    """As many of each kind, in a random order that is always the same."""
    random, count = Random(0), min(len(prefills), len(decodes), MOST)
    rows = random.sample(prefills, count) + random.sample(decodes, count)
    random.shuffle(rows)
    return rows
