"""The metrics that are counted as things happen, their labels and buckets; and how all are told.

Base units, bounded labels. `docs/operations.md` has the table for people. What is known anyway and
read at scrape time is in `gauges`.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from gateway.pace import ITL_BUCKETS, Pace
from gateway.record import Outcome, RequestRecord
from gateway.series import Counter, Exported, Histogram, Series, moved
from scheduler.events import Decided

# 5 ms is a warm prefix-cached prompt, 60 s a very long one on a full engine; 0.2 and 0.6 are
# the targets that operators alert on.
TTFT_BUCKETS = (
    *(0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),
    *(1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
)
STAGE_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
STALL_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
E2E_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


REJECTED = frozenset((Outcome.INVALID, Outcome.SHED, Outcome.EXPIRED, Outcome.UNAVAILABLE))
ROWS_AT_ONCE = 40
"""Rows of a metric that are rendered before the loop gets its turn: about half a millisecond."""


class Metrics:
    """The counters and histograms that requests and operators' actions move.

    `registry` is for what is read at scrape time. What relay processes `export`, the brain's own
    metrics `merge`: each count arrives exactly once.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "forebay_requests_total",
            "Requests to the shaped endpoints, by how they ended.",
            ["model", "service_class", "channel", "outcome", "status"],
        )
        self._rejects = Counter(
            "forebay_rejects_total",
            "Requests that Forebay refused, by the error's code that the client was told.",
            ["code"],
        )
        self._ttft = Histogram(
            "forebay_ttft_seconds",
            "Time to first token: first byte of the request to first byte of the answer's body.",
            ["model", "service_class"],
            buckets=TTFT_BUCKETS,
        )
        self._stage = Histogram(
            "forebay_ttft_stage_seconds",
            "The stages of the TTFT: read, tokenize, queue, connect, backend.",
            ["service_class", "stage"],
            buckets=STAGE_BUCKETS,
        )
        self._e2e = Histogram(
            "forebay_e2e_seconds",
            "First byte of the request to last byte of the answer.",
            ["model", "service_class"],
            buckets=E2E_BUCKETS,
        )
        self._tpot = Histogram(
            "forebay_tpot_seconds",
            "Mean time for each output token after the first, of whole streams.",
            ["model", "service_class"],
            buckets=ITL_BUCKETS,
        )
        self._itl = Histogram(
            "forebay_itl_seconds",
            "The gaps between the pieces of whole streams.",
            ["model", "service_class"],
            buckets=ITL_BUCKETS,
        )
        self._declare_events()
        own = [one for one in vars(self).values() if isinstance(one, Series)]
        self._series = {one.name: one for one in own}

    def _declare_events(self) -> None:
        """What happens beside the times of requests."""
        self._stall = Histogram(
            "forebay_loop_stall_seconds",
            "By how much a timer of the event loop came late, sampled 20 times a second.",
            [],
            buckets=STALL_BUCKETS,
        )
        self._prompt_tokens = Counter(
            "forebay_prompt_tokens_total",
            "Prompt tokens of requests that a backend took.",
            ["model", "service_class"],
        )
        self.prompts_counted = Counter(
            "forebay_prompts_counted_total",
            "Requests whose prompt was counted, exactly or by an estimate.",
            ["endpoint", "count"],
        )
        self.retries = Counter("forebay_retries_total", "Requests sent to another backend.")
        self._decisions = Counter(
            "forebay_decisions_total", "Changes of a pool's effective limit.", ["pool", "what"]
        )
        self._tuned = Counter(
            "forebay_tuning_decisions_total",
            "What changed by itself, and trials of engines that began and ended.",
            ["what"],
        )
        self._parity = Counter(
            "forebay_parity_mismatches_total",
            "Answers whose usage.prompt_tokens was not our exact count.",
            ["backend", "model"],
        )
        self._distrusted = Counter(
            "forebay_parity_distrusted_total",
            "Times that a backend lost its ids for a model, until an operator or a restart.",
            ["backend", "model"],
        )
        self.settings_accepted = Counter(
            "forebay_settings_accepted_total", "Changes of Redis keys put in force."
        )
        self.settings_rejected = Counter(
            "forebay_settings_rejected_total", "Changes of Redis keys refused."
        )

    def names(self) -> list[str]:
        """Of the metrics that are counted here, not read at scrape time."""
        return list(self._series)

    def rows(self, name: str) -> Exported:
        """One of them as it stands: label values and numbers, as `series` has them."""
        return self._series[name].rows()

    def observe(self, record: RequestRecord) -> None:
        """Count one ended request."""
        model, cls = labels = record.model, record.service_class
        self._requests.inc(model, cls, record.channel, record.outcome.value, str(record.status))
        if record.error and record.outcome in REJECTED:  # an engine's own refusal has no error
            self._rejects.inc(record.code or "-")
        self._e2e.observe(labels, record.e2e)
        for stage, seconds in record.stages.items():
            self._stage.observe((cls, stage), seconds)
        if record.ttft is not None:
            self._ttft.observe(labels, record.ttft)
            self._prompt_tokens.inc(model, cls, by=record.prompt_tokens)

    def paced(self, model: str, service_class: str, pace: Pace) -> None:
        """Count how the tokens of one whole stream came."""
        labels = model, service_class
        self._itl.add(labels, [*pace.gaps, pace.waited])
        if (seconds := pace.per_token) is not None:
            self._tpot.observe(labels, seconds)

    def stalled(self, seconds: float) -> None:
        self._stall.observe((), seconds)

    def parity_differs(self, backend: str, model: str) -> None:
        self._parity.inc(backend, model)

    def distrusted(self, backend: str, model: str) -> None:
        self._distrusted.inc(backend, model)

    def decided(self, decision: Decided) -> None:
        self._decisions.inc(decision.pool, decision.what.partition(":")[0])

    def tuned(self, kind: str) -> None:
        self._tuned.inc(kind)

    def export(self) -> dict[str, Any]:
        """What was counted since the last export, as plain data; it is another process's now."""
        return moved(list(self._series.values()))

    def merge(self, exported: dict[str, Any]) -> None:
        """Add what another process of this version has exported."""
        for name, rows in exported.items():
            self._series[name].merge(rows)

    async def render(self) -> bytes:
        """All metrics as Prometheus reads them, made in steps: a scrape must not stop streams."""
        text: list[bytes] = []
        for series in self._series.values():
            text.append(series.head().encode())
            for number, line in enumerate(series.lines(), start=1):
                text.append(line.encode())
                if number % ROWS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        for family in self.registry.collect():
            text.append(generate_latest(_Single(family)))
            await asyncio.sleep(0)
        return b"".join(text)


class _Single(CollectorRegistry):
    """A registry of one family, to have only that one rendered."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
