"""Every metric of the gateway, its labels and its buckets. Base units, bounded labels.

`docs/operations.md` has the same table for people. Counts that the scheduler keeps anyway are
read from its snapshot at scrape time, so that they cost nothing on a request's path.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.fleet import Fleet
from backends.types import State
from gateway import __version__
from gateway.pace import ITL_BUCKETS, Pace
from gateway.record import RequestRecord
from gateway.series import Counter, Exported, Histogram, Series, moved
from scheduler.events import Decided
from scheduler.snapshot import Snapshot
from tokenizer_pool.types import PoolReport

# 5 ms is a warm prefix-cached prompt, 60 s a very long one on a full engine; 0.2 and 0.6 are
# the targets that operators alert on.
TTFT_BUCKETS = (
    *(0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),
    *(1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
)
STAGE_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
STALL_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
E2E_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


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
        own = [one for one in vars(self).values() if isinstance(one, Series)]
        self._series = {one.name: one for one in own}

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


class StateCollector(Collector):
    """Gauges read at scrape time from what the scheduler, the fleet and control know."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        fleet: Fleet,
        report: Callable[[], PoolReport],
        redis_up: Callable[[], bool | None],
        *,
        settings_version: Callable[[], int],
        tasks: Callable[[], int],
    ) -> None:
        self._snapshot = snapshot
        self._fleet = fleet
        self._report = report
        self._redis_up = redis_up
        self._settings_version = settings_version
        self._tasks = tasks

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        yield _gauge(
            "forebay_queued_requests",
            "Tickets waiting for a backend.",
            ["service_class"],
            [((p.service_class,), p.queued) for p in snapshot.pools],
        )
        yield _gauge(
            "forebay_queued_tokens",
            "Prompt tokens of the waiting tickets.",
            ["service_class"],
            [((p.service_class,), p.queued_tokens) for p in snapshot.pools],
        )
        limits = [(p.service_class, p.limit_configured, p.limit_effective) for p in snapshot.pools]
        yield _gauge(
            "forebay_pool_limit_requests",
            "Requests in flight that a pool may have: as configured, and now in effect.",
            ["pool", "kind"],
            [((name, "configured"), configured) for name, configured, _ in limits]
            + [((name, "effective"), effective) for name, _, effective in limits],
        )
        yield _gauge(
            "forebay_in_flight_requests",
            "Requests between dispatch and the end of their stream.",
            ["backend"],
            [((b.name,), b.in_flight) for b in snapshot.backends],
        )
        yield _gauge(
            "forebay_backend_limit_requests",
            "Requests in flight that a backend may have.",
            ["backend"],
            [((b.name,), b.limit) for b in snapshot.backends],
        )
        yield _gauge(
            "forebay_prefill_backlog_tokens",
            "Prompt tokens dispatched whose first token has not come.",
            ["backend"],
            [((b.name,), b.prefill_backlog) for b in snapshot.backends],
        )
        yield _gauge(
            "forebay_backend_state",
            "1 for the state that the backend is in.",
            ["backend", "state"],
            [
                ((s.spec.name, state.value), float(s.state is state))
                for s in self._fleet.statuses()
                for state in State
            ],
        )
        yield from self._own_traffic()
        yield from self._engine_load()
        yield from self._tokenizers()
        yield _gauge(
            "forebay_tasks", "Tasks of the process that decides.", [], [((), self._tasks())]
        )
        yield _gauge(
            "forebay_pool_burst",
            "1 while a pool's limit is below the configured one, after a burst.",
            ["pool"],
            [((name,), float(now < whole)) for name, whole, now in limits],
        )
        yield _gauge(
            "forebay_settings_version",
            "The version of the operators' keys that is in force; 0 is the file's.",
            [],
            [((), self._settings_version())],
        )
        yield _gauge("forebay_build_info", "1; what runs.", ["version"], [((__version__,), 1.0)])
        if (up := self._redis_up()) is not None:
            yield _gauge("forebay_redis_up", "1 while Redis answers.", [], [((), float(up))])

    def _own_traffic(self) -> Iterator[Metric]:
        own = self._fleet.own_traffic()
        requests = CounterMetricFamily(
            "forebay_warm_requests", "Our own one-token requests.", labels=["backend"]
        )
        tokens = CounterMetricFamily(
            "forebay_warm_prompt_tokens", "Their prompt tokens.", labels=["backend"]
        )
        for name, traffic in own.items():
            requests.add_metric([name], traffic.requests)
            tokens.add_metric([name], traffic.prompt_tokens)
        yield requests
        yield tokens

    def _tokenizers(self) -> Iterator[Metric]:
        report = self._report()
        yield _gauge(
            "forebay_tokenizer_engine_info",
            "1; the engines that serve the model, and why these.",
            ["model", "encode", "template", "why"],
            [
                ((m.model, m.encode_engine, m.template_engine, "; ".join(m.notes)[:200]), 1.0)
                for m in report.models
            ],
        )
        yield _gauge(
            "forebay_tokenizer_queued_requests",
            "Bodies that wait for a tokenizer worker.",
            ["lane"],
            [((lane.name,), lane.queued) for lane in report.lanes],
        )
        cache = sum((lane.cache for lane in report.lanes), report.inline_cache)
        for name, text, value in (
            ("forebay_segment_cache_hits", "Text segments encoded before.", cache.hits),
            ("forebay_segment_cache_misses", "Text segments encoded anew.", cache.misses),
            ("forebay_segment_cache_saved_bytes", "Text not encoded again.", cache.hit_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _engine_load(self) -> Iterator[Metric]:
        loads = self._fleet.loads()
        yield _gauge(
            "forebay_engine_kv_usage_ratio",
            "The KV cache's usage as the engine says, 0 to 1.",
            ["backend"],
            [((load.backend,), load.kv_usage) for load in loads],
        )
        yield _gauge(
            "forebay_engine_drift_requests",
            "Requests that the engine counts less those that we have in flight there.",
            ["backend"],
            [((load.backend,), load.drift) for load in loads],
        )
        for name, text, field in (
            ("forebay_engine_preemptions", "Requests that the engine preempted.", "preemptions"),
            ("forebay_engine_prefix_queries", "Tokens asked of the cache.", "prefix_queries"),
            ("forebay_engine_prefix_hits", "Tokens found in the cache.", "prefix_hits"),
        ):
            counter = CounterMetricFamily(name, text, labels=["backend"])
            for load in loads:
                counter.add_metric([load.backend], getattr(load, field))
            yield counter


def _gauge(
    name: str, text: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(list(values), value)
    return family
