"""What is counted arrives once, in the format that Prometheus reads, without stopping the loop."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from backends.types import BackendSpec, BackendStatus, State
from gateway.gauges import StateCollector
from gateway.metrics import TTFT_BUCKETS, Metrics
from gateway.record import Outcome
from gateway.series import MAX_ROWS, OVERFLOW, Counter, Histogram
from scheduler.core import Scheduler
from scheduler.model import ClassSpec, Settings
from tests.gateway.records import RECORD
from tokenizer_pool.types import PoolReport


async def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What a Prometheus server would read."""
    families = text_string_to_metric_families((await metrics.render()).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_a_request_moves_its_metrics() -> None:
    metrics = Metrics()
    metrics.observe(RECORD)
    metrics.observe(replace(RECORD, ttft=None, status=503, outcome=Outcome.SHED))
    seen = await samples(metrics)
    of = {"model": "m", "service_class": "short"}
    done = {**of, "channel": "ids", "outcome": "completed", "status": "200"}
    assert seen[key("forebay_requests_total", **done)] == 1
    assert seen[key("forebay_requests_total", **done | {"outcome": "shed", "status": "503"})] == 1
    assert seen[key("forebay_e2e_seconds_count", **of)] == 2
    assert seen[key("forebay_e2e_seconds_sum", **of)] == 1.0
    assert seen[key("forebay_prompt_tokens_total", **of)] == 12
    assert seen[key("forebay_ttft_seconds_bucket", **of, le="0.075")] == 0
    assert seen[key("forebay_ttft_seconds_bucket", **of, le="0.1")] == 1
    stage = {"service_class": "short", "stage": "tokenize"}
    assert seen[key("forebay_ttft_stage_seconds_bucket", **stage, le="0.003")] == 2


async def test_what_was_refused_is_counted_by_what_the_client_was_told() -> None:
    metrics = Metrics()
    refused = replace(RECORD, ttft=None, status=429, outcome=Outcome.SHED, error="Rejected: x")
    for code in ("queue_full", "queue_full", "tenant_queue_full", ""):
        metrics.observe(replace(refused, code=code))
    metrics.observe(replace(refused, outcome=Outcome.BACKEND_FAILED, code="backend_connect"))
    metrics.observe(replace(RECORD, status=400, outcome=Outcome.INVALID))  # the engine's own
    seen = await samples(metrics)
    rejects = {k: v for k, v in seen.items() if k[0] == "forebay_rejects_total"}
    assert rejects == {
        key("forebay_rejects_total", code="queue_full"): 2,
        key("forebay_rejects_total", code="tenant_queue_full"): 1,
        key("forebay_rejects_total", code="-"): 1,
    }


@pytest.mark.parametrize("state", list(State))
async def test_a_backends_life_is_its_circuit_breaker(state: State) -> None:
    class Fleet:
        def statuses(self) -> list[BackendStatus]:
            return [BackendStatus(BackendSpec("b", "http://h:1"), state, None, "")]

        def own_traffic(self) -> dict[str, Any]:
            return {}

        def loads(self) -> list[Any]:
            return []

    metrics = Metrics()
    metrics.registry.register(
        StateCollector(
            Scheduler(Settings(classes=(ClassSpec("all"),))).snapshot,
            Fleet(),  # type: ignore[arg-type]
            lambda: PoolReport((), (), 0),
            lambda: None,
            settings_version=lambda: 0,
            tasks=lambda: 0,
        )
    )
    open_ = {State.READY: 0, State.DRAINING: 0, State.PROBING: 1, State.WARMING: 1, State.DOWN: 2}
    assert (await samples(metrics))[key("forebay_backend_breaker", backend="b")] == open_[state]


async def test_any_label_value_and_what_is_read_at_scrape_time_are_rendered() -> None:
    metrics = Metrics()
    odd = 'a"b\\c\nd,{}='
    metrics.observe(replace(RECORD, model=odd))

    class Own:
        def collect(self) -> list[GaugeMetricFamily]:
            return [GaugeMetricFamily("mine", "A gauge.", value=2.5)]

    metrics.registry.register(Own())
    seen = await samples(metrics)
    assert seen[key("forebay_ttft_seconds_count", model=odd, service_class="short")] == 1
    assert seen[key("mine")] == 2.5


@given(st.lists(st.lists(st.floats(0, 100), max_size=5), max_size=6), st.data())
def test_no_count_is_lost_or_doubled_between_processes(
    turns: list[list[float]], data: st.DataObject
) -> None:
    node, relays = Metrics(), [Metrics(), Metrics()]
    whole = Metrics()
    for turn in turns:
        relay = data.draw(st.sampled_from(relays))
        for ttft in turn:
            record = replace(RECORD, ttft=ttft, model=f"m{int(ttft) % 3}")
            relay.observe(record)
            whole.observe(record)
        node.merge(orjson.loads(orjson.dumps(relay.export())))
    seen, wanted = (asyncio.run(samples(metrics)) for metrics in (node, whole))
    sums = {name for name in wanted if name[0].endswith("_sum")}
    assert {k: v for k, v in seen.items() if k not in sums} == {
        k: v for k, v in wanted.items() if k not in sums
    }
    assert all(abs(seen[name] - wanted[name]) < 1e-6 for name in sums)
    assert not relays[0].export()


def test_label_values_are_bounded() -> None:
    counter = Counter("c_total", "Counts.", ["model"])
    for number in range(MAX_ROWS + 50):
        counter.inc(f"m{number}")
    rows = dict(counter.export())
    assert len(rows) == MAX_ROWS + 1
    assert rows[(OVERFLOW,)] == [50.0]


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram("h", "Measures.", [], buckets=TTFT_BUCKETS)
    for bound in TTFT_BUCKETS:
        histogram.observe((), bound)
    (row,) = (numbers for _, numbers in histogram.export())
    assert row[: len(TTFT_BUCKETS)] == [1.0] * len(TTFT_BUCKETS)
    assert row[len(TTFT_BUCKETS)] == 0.0


async def test_a_scrape_lets_the_loop_turn_between_its_parts() -> None:
    metrics = Metrics()
    for number in range(400):
        metrics.observe(replace(RECORD, model=f"m{number}"))
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.get_running_loop().create_task(turning())
    await metrics.render()
    task.cancel()
    assert turns >= 4 * 400 // 40
