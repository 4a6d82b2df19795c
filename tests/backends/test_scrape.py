"""An engine's own metrics: cut out of the page, told on, compared with our count."""

import logging
from dataclasses import replace

import pytest

from backends.errors import ConnectFailed
from backends.scrape import DriftWatch, read
from backends.settings import ScrapeSettings
from backends.types import Load, State
from tests.backends.engine import Engine
from tests.backends.fleets import FAST, ask, fleet_of
from tests.backends.scripted import start, until

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 150.0
process_start_time_seconds 1.7e+09
"""
SCRAPING = replace(FAST, scrape=ScrapeSettings(interval=0.02, drift_after=0.1))


def test_only_the_wanted_lines_are_read() -> None:
    assert read(PAGE.encode()) == {
        "vllm:num_requests_running": [3.0, 2.0],
        "vllm:num_requests_waiting": [4.0],
        "vllm:kv_cache_usage_perc": [0.25, 0.5],
        "vllm:num_preemptions_total": [7.0],
        "vllm:prefix_cache_queries_total": [200.0],
        "vllm:prefix_cache_hits_total": [150.0],
        "process_start_time_seconds": [1.7e9],
    }


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>vllm:num_requests_running 3</html>",
        b"vllm:num_requests_running x\n",
        b"vllm:num_requests_running{",
        b"vllm:num_requests_running \xff\n",
    ],
)
def test_a_strange_page_says_nothing(page: bytes) -> None:
    assert read(page) == {}


async def test_readings_of_a_ready_backend_are_told_with_our_own_count_beside() -> None:
    engine = Engine(metrics=PAGE)
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (fleet, watch):
        await until(lambda: len(watch.loads) >= 2)
        load = watch.loads[-1]
        assert (load.running, load.waiting, load.kv_usage, load.preemptions) == (5, 4, 0.5, 7)
        assert (load.in_flight, load.drift, load.started_at) == (0, 9, 1.7e9)
        assert (load.prefix_queries, load.prefix_hits) == (200, 150)
        assert fleet.loads()[0].backend == "b1"
        engine.hanging = True
        asking = start(ask(fleet))
        await until(lambda: watch.loads[-1].in_flight == 1)
        assert watch.loads[-1].drift == 8
        asking.cancel()


async def test_a_page_without_metrics_tells_nothing() -> None:
    engine = Engine(metrics="nothing here\n")
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (fleet, watch):
        await until(lambda: len(engine.asked("/metrics")) >= 3)
        engine.refuse["/metrics"] = 404
        await until(lambda: len(engine.asked("/metrics")) >= 6)
        assert (watch.loads, fleet.loads()) == ([], ())
        assert watch.states()[-1] == "ready"


async def test_a_backend_that_is_not_ready_is_not_scraped() -> None:
    engine = Engine(refuse={"/v1/models": 500}, metrics=PAGE)
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (_, watch):
        await until(lambda: watch.states().count("down") >= 3)
        assert engine.asked("/metrics") == []


async def test_a_silent_restart_is_noticed_by_the_start_time_and_proved_again() -> None:
    engine = Engine(metrics=PAGE)
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (_, watch):
        await until(lambda: len(watch.loads) >= 2)
        before = len(watch.seen)
        engine.metrics = PAGE.replace("seconds 1.7e+09", "seconds 1.8e+09")
        down = await watch.until(State.DOWN, after=before)
        assert down.reason == "the server was restarted"
        await watch.until(State.READY, after=before)
        readings = len(watch.loads)
        await until(lambda: len(watch.loads) > readings + 2)
        assert watch.states()[-1] == "ready"


async def test_a_restart_that_was_seen_as_a_loss_is_not_told_of_twice() -> None:
    engine = Engine(metrics=PAGE)
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (fleet, watch):
        await until(lambda: len(watch.loads) >= 2)
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        engine.metrics = PAGE.replace("seconds 1.7e+09", "seconds 1.8e+09")
        readings = len(watch.loads)
        await until(lambda: len(watch.loads) > readings + 2)
        assert watch.states().count("down") == 1


async def test_a_server_that_tells_no_start_time_is_left_in_peace() -> None:
    untold = PAGE.replace("process_start_time_seconds", "other")
    engine = Engine(metrics=untold)
    async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING) as (_, watch):
        await until(lambda: len(watch.loads) >= 2)
        for page in (PAGE, untold):
            engine.metrics = page
            readings = len(watch.loads)
            await until(lambda: len(watch.loads) > readings + 2)  # noqa: B023
        assert watch.states() == ["probing", "warming", "ready"]


async def test_lasting_drift_is_logged_with_the_backend_s_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Engine(metrics=PAGE)
    with caplog.at_level(logging.WARNING, "forebay.backends"):
        async with engine.serving(), fleet_of(engine.spec(), settings=SCRAPING):
            await until(lambda: bool(caplog.records))
    assert caplog.messages[0] == "backend b1: it counts 9 requests and we 0, for too long a time"


def test_drift_is_told_once_and_its_end_once() -> None:
    watch = DriftWatch(ScrapeSettings(drift_requests=2, drift_after=10))

    def told(at: float, running: int) -> int:
        return len(list(watch.observe(Load("b1", at, running, 0, 0.0, 0, 5))))

    assert [told(at, 5) for at in range(3)] == [0, 0, 0]
    assert [told(at, 8) for at in range(3, 20)] == [0] * 10 + [1] + [0] * 6
    assert [told(at, 5) for at in range(20, 23)] == [1, 0, 0]
    assert [told(at, 8 if at % 5 else 5) for at in range(23, 60)] == [0] * 37
    assert [told(at, 2) for at in range(60, 72)].count(1) == 1
