"""A backend's way into traffic and, by the operator's wish, out of it."""

import asyncio
import re
from dataclasses import replace

import pytest

from backends.errors import (
    ConnectFailed,
    NotServing,
    StreamBroken,
)
from backends.fleet import Fleet
from backends.types import BackendSpec, Channel, OwnTraffic, State
from backends.warm import settled
from tests.backends.engine import Engine
from tests.backends.fleets import FAST, ask, fleet_of
from tests.backends.scripted import deaf_port, start, until, unused_port

# The way to READY


async def test_a_backend_is_ready_only_after_its_warm_up() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        ready = await watch.until(State.READY)
        assert watch.states() == ["probing", "warming", "ready"]
        assert ready.capabilities is not None
        assert ready.capabilities.chat is Channel.IDS
        probes, warm_ups = 1 + 2, 4 * 2
        assert len(engine.asked("/v1/chat/completions")) == probes + warm_ups
        assert fleet.statuses() == (ready,)


async def test_warm_up_prompts_have_the_class_s_length_and_begin_differently() -> None:
    engine = Engine()
    warm = replace(FAST.warm, prompt_tokens={"short": (100,), "long": (500, 1000), "other": (7,)})
    classes = frozenset(("short", "long"))
    async with (
        engine.serving(),
        fleet_of(engine.spec(classes=classes), settings=replace(FAST, warm=warm)) as (_, watch),
    ):
        ready = await watch.until(State.READY)
        asked = engine.asked("/v1/chat/completions")[-8:]
        words = [d["messages"][0]["content"].split() for d in asked]
        # Four requests a round, three lengths: each in turn, in both rounds.
        near = sorted(round(len(prompt), -2) for prompt in words)
        assert near == sorted(2 * [100, 500, 1000, 100])
        assert len({prompt[0] for prompt in words}) == 8
        assert all(d["max_tokens"] == 1 for d in asked)
        assert ready.prefill_rate is not None
        assert ready.prefill_rate > 1000


async def test_what_warming_costs_is_counted_and_probing_is_not() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        words_and_template = 125 + 2
        assert fleet.own_traffic() == {"b1": OwnTraffic(8, 8 * words_and_template)}


async def test_warm_up_prompts_fit_into_a_small_context() -> None:
    engine = Engine()
    warm = replace(FAST.warm, default_tokens=100_000)
    async with (
        engine.serving(),
        fleet_of(engine.spec(), settings=replace(FAST, warm=warm)) as (_, watch),
    ):
        await watch.until(State.READY)
        prompt = engine.asked("/v1/chat/completions")[-1]["messages"][0]["content"]
        assert len(prompt.split()) < 2048


async def test_rounds_end_when_the_first_token_time_has_settled() -> None:
    engine = Engine()
    warm = replace(FAST.warm, rounds=9, tolerance=1e9)
    async with (
        engine.serving(),
        fleet_of(engine.spec(), settings=replace(FAST, warm=warm)) as (_, watch),
    ):
        ready = await watch.until(State.READY)
        assert re.fullmatch(r"warm, time to first token \d+ → \d+ ms", ready.reason)


@pytest.mark.parametrize(
    ("medians", "expected"),
    [([1.2], False), ([1.2, 0.3], False), ([1.2, 0.3, 0.26], True), ([0.3, 0.9], False)],
)
def test_settled_means_that_two_rounds_on_end_agree(medians: list[float], expected: bool) -> None:
    assert settled(medians, tolerance=0.25) is expected


async def test_an_engine_too_slow_for_its_warm_up_is_used_all_the_same() -> None:
    engine = Engine(chat_ids="refused", completion_ids="refused")
    engine.first_token_delays = [0.0, 0.0, 0.0, 0.0, 60.0, 60.0, 60.0]
    warm = replace(FAST.warm, time_limit=0.3)
    async with (
        engine.serving(),
        fleet_of(engine.spec(), settings=replace(FAST, warm=warm)) as (fleet, watch),
    ):
        await watch.until(State.READY)
        assert watch.states() == ["probing", "warming", "ready"]
        assert fleet.client("b1").in_flight == 0


async def test_a_warm_up_that_fails_keeps_the_backend_out() -> None:
    engine = Engine(chat_ids="ignored")
    async with engine.serving(), fleet_of(engine.spec()) as (_, watch):
        await watch.until(State.WARMING)
        engine.refuse["/v1/chat/completions"] = 500
        down = await watch.until(State.DOWN)
        assert "answered 500" in down.reason
        del engine.refuse["/v1/chat/completions"]
        await watch.until(State.READY)


async def test_warm_up_requests_stream_as_users_do() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (_, watch):
        await watch.until(State.READY)
        assert all(d["stream"] for d in engine.asked("/v1/chat/completions")[-8:])


async def test_an_error_within_a_stream_is_no_warmth() -> None:
    engine = Engine(failing_streams=True)
    async with engine.serving(), fleet_of(engine.spec()) as (_, watch):
        down = await watch.until(State.DOWN)
        assert down.reason.endswith("ended its stream with an error")
        engine.failing_streams = False
        await watch.until(State.READY)


async def test_a_busy_server_counts_as_warm() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (_, watch):
        await watch.until(State.WARMING)
        engine.refuse["/v1/chat/completions"] = 503
        ready = await watch.until(State.READY)
        assert ready.prefill_rate is None


async def test_a_backend_that_is_not_there_yet_is_found_when_it_comes() -> None:
    port = unused_port()
    engine = Engine()
    async with fleet_of(BackendSpec("b1", f"http://127.0.0.1:{port}")) as (_, watch):
        await watch.until(State.DOWN)
        async with engine.serving(port):
            await watch.until(State.READY)
            assert "down" in watch.states()


# Draining

SPRY = replace(FAST, warm=replace(FAST.warm, keep_after=0.05), health_interval=0.05)


async def test_a_drained_backend_ends_its_streams_and_gets_nothing_new() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=SPRY) as (fleet, watch):
        await watch.until(State.READY)
        engine.first_token_delays = [0.2]
        asking = start(ask(fleet))
        await until(lambda: fleet.client("b1").in_flight > 0)
        assert await fleet.drain("b1", 5)
        assert asking.done()
        assert fleet.statuses()[0].state is State.DRAINING
        asked = len(engine.requests)
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        fleet.report_failure("b1", StreamBroken("b1", "reset"))
        assert await fleet.drain("b1", 0.2), "it may be asked again"
        assert len(engine.requests) == asked, "a drained backend is left alone"
        before = len(watch.seen)
        fleet.readmit("b1")
        await watch.until(State.READY, after=before)
        assert watch.states()[before:] == ["probing", "warming", "ready"]


async def test_draining_gives_up_after_its_time() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        engine.hanging = True
        asking = start(ask(fleet))
        await until(lambda: engine.asked("/v1/completions")[-1]["prompt"] == "a b c")
        assert not await fleet.drain("b1", 0.05)
        assert not asking.done()
        asking.cancel()
        assert await fleet.drain("b1", 5)


async def test_a_backend_that_is_still_warming_can_be_drained_too() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.WARMING)
        engine.hanging = True
        assert await fleet.drain("b1", 5)
        assert watch.states()[-1] == "draining"


# The fleet


async def test_one_dead_backend_does_not_keep_the_other_from_traffic() -> None:
    engine = Engine()
    with deaf_port() as port:
        dead = BackendSpec("dead", f"http://127.0.0.1:{port}")
        async with engine.serving(), fleet_of(dead, engine.spec()) as (fleet, watch):
            await watch.until(State.READY)
            assert [s.state for s in fleet.statuses()] == [State.PROBING, State.READY]
            assert b"prompt_tokens" in await ask(fleet)


async def test_tokenize_by_name() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, _):
        assert await fleet.tokenize("b1", "m", prompt="a b") == [97, 98]
        dead = NotServing
    async with fleet_of(BackendSpec("b1", f"http://127.0.0.1:{unused_port()}")) as (fleet, _):
        with pytest.raises(dead):
            await fleet.tokenize("b1", "m", prompt="a")


async def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="same name"):
        Fleet([BackendSpec("a", "http://h"), BackendSpec("a", "http://i")], FAST, print, start)  # type: ignore[arg-type]


async def test_stop_leaves_no_task_and_no_connection() -> None:
    before = len(asyncio.all_tasks())
    engine = Engine(hanging=True)
    async with engine.serving(), fleet_of(engine.spec()):
        await until(lambda: engine.generations() > 0)
    assert len(asyncio.all_tasks()) == before
