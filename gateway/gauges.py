"""The metrics that are read at scrape time from what the scheduler, the fleet, the tokenizers and
control know anyway, so that they cost a request nothing. What is counted is in `metrics`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.fleet import Fleet
from backends.types import State
from gateway import __version__
from scheduler.snapshot import BackendView, PoolView, Snapshot
from tokenizer_pool.types import PoolReport

_BREAKER = {
    State.READY: 0.0,
    State.DRAINING: 0.0,  # it gets nothing new because an operator wants that
    State.PROBING: 1.0,
    State.WARMING: 1.0,
    State.DOWN: 2.0,
}
"""A backend's life is its circuit breaker, as `backends.breaker` says."""


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
        yield from _pools(snapshot.pools)
        yield from self._backends(snapshot.backends)
        yield from self._own_traffic()
        yield from self._engine_load()
        yield from self._tokenizers()
        yield from self._itself()

    def _backends(self, views: Sequence[BackendView]) -> Iterator[Metric]:
        yield _gauge(
            "forebay_in_flight_requests",
            "Requests between dispatch and the end of their stream.",
            ["backend"],
            [((b.name,), b.in_flight) for b in views],
        )
        yield _gauge(
            "forebay_backend_limit_requests",
            "Requests in flight that a backend may have.",
            ["backend"],
            [((b.name,), b.limit) for b in views],
        )
        yield _gauge(
            "forebay_prefill_backlog_tokens",
            "Prompt tokens dispatched whose first token has not come.",
            ["backend"],
            [((b.name,), b.prefill_backlog) for b in views],
        )
        yield _gauge(
            "forebay_backend_breaker",
            "The circuit breaker: 0 closed, 1 half-open (our own requests only), 2 open.",
            ["backend"],
            [((s.spec.name,), _BREAKER[s.state]) for s in self._fleet.statuses()],
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

    def _itself(self) -> Iterator[Metric]:
        yield _gauge("forebay_build_info", "1; what runs.", ["version"], [((__version__,), 1.0)])
        yield _gauge(
            "forebay_tasks", "Tasks of the process that decides.", [], [((), self._tasks())]
        )
        yield _gauge(
            "forebay_settings_version",
            "The version of the operators' keys that is in force; 0 is the file's.",
            [],
            [((), self._settings_version())],
        )
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


def _pools(views: Sequence[PoolView]) -> Iterator[Metric]:
    yield _gauge(
        "forebay_queued_requests",
        "Tickets waiting for a backend.",
        ["service_class"],
        [((p.service_class,), p.queued) for p in views],
    )
    yield _gauge(
        "forebay_queued_tokens",
        "Prompt tokens of the waiting tickets.",
        ["service_class"],
        [((p.service_class,), p.queued_tokens) for p in views],
    )
    limits = [(p.service_class, p.limit_configured, p.limit_effective) for p in views]
    yield _gauge(
        "forebay_pool_limit_requests",
        "Requests in flight that a pool may have: as configured, and now in effect.",
        ["pool", "kind"],
        [((name, "configured"), configured) for name, configured, _ in limits]
        + [((name, "effective"), effective) for name, _, effective in limits],
    )
    yield _gauge(
        "forebay_pool_burst",
        "1 while a pool's limit is below the configured one, after a burst.",
        ["pool"],
        [((name,), float(now < whole)) for name, whole, now in limits],
    )


def _gauge(
    name: str, text: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(list(values), value)
    return family
