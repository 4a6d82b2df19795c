"""What one engine was busy with over a time: prompt tokens read, answers decoded at once. Pure.

Only the ends of each request are known, so a prompt is taken to be read evenly from the time it was
sent to its first token, and an answer that was not streamed to be decoded all the time.
"""

from collections.abc import Sequence
from typing import Any

import numpy

from bench.recalibrate.log import Seen

Numbers = Any
"""An array of floats."""


class Occupancy:
    """One backend's part of the log."""

    def __init__(self, requests: Sequence[Seen]) -> None:
        streamed = [r for r in requests if r.first is not None and r.first > r.sent]
        self._prefill = _Integral(
            [r.sent for r in streamed],
            [r.first or r.sent for r in streamed],
            [r.prompt / ((r.first or r.ended) - r.sent) for r in streamed],
        )
        self._decoding = _Integral(
            [r.sent if r.first is None else r.first for r in requests],
            [r.ended for r in requests],
            [1.0] * len(requests),
        )

    def prefilled(self, since: Numbers, until: Numbers) -> Numbers:
        """Prompt tokens read in each span, all requests together."""
        return self._prefill.between(since, until)

    def decoding(self, since: Numbers, until: Numbers) -> Numbers:
        """Answers decoded at once, on average over each span."""
        return self._decoding.between(since, until) / numpy.maximum(until - since, 1e-9)


class _Integral:
    """Of a sum of steps: each is `rate` from its start to its end."""

    def __init__(
        self, starts: Sequence[float], ends: Sequence[float], rates: Sequence[float]
    ) -> None:
        times = numpy.array([*starts, *ends], dtype=float)
        changes = numpy.array([*rates, *(-rate for rate in rates)], dtype=float)
        order = numpy.argsort(times, kind="stable")
        self._times = times[order]
        level = numpy.cumsum(changes[order])
        areas = level[:-1] * numpy.diff(self._times)
        self._areas = numpy.concatenate(([0.0], numpy.cumsum(areas)))[: len(self._times)]

    def between(self, since: Numbers, until: Numbers) -> Numbers:
        if not len(self._times):
            return numpy.zeros(len(since))
        return self._at(until) - self._at(since)

    def _at(self, times: Numbers) -> Numbers:
        return numpy.interp(times, self._times, self._areas)
