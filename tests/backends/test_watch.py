"""How a backend is lost, by traffic's reports or its own silence, and comes back."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from backends.breaker import BreakerSettings
from backends.client import ClientLimits
from backends.errors import (
    ConnectFailed,
    ConnectionsExhausted,
    FirstTokenTimeout,
    StreamBroken,
)
from backends.lifecycle import backoff
from backends.settings import FleetSettings
from backends.types import BackendSpec, Channel, State, Timeouts
from tests.backends.engine import Engine
from tests.backends.fleets import FAST, ask, fleet_of
from tests.backends.scripted import Collector, start, until, unused_port

# Loss, seen by traffic


async def test_a_refused_connection_takes_it_down_before_report_returns() -> None:
    async with AsyncExitStack() as stack:
        engine = Engine()
        server = await stack.enter_async_context(AsyncExitStack())
        await server.enter_async_context(engine.serving())
        fleet, watch = await stack.enter_async_context(fleet_of(engine.spec()))
        await watch.until(State.READY)
        port = engine.port
        await server.aclose()
        with pytest.raises(ConnectFailed) as caught:
            await ask(fleet)
        before = len(watch.seen)
        fleet.report_failure("b1", caught.value)
        assert watch.seen[before].state is State.DOWN
        warmed = engine.generations()
        async with Engine.serving(engine, port):
            await watch.until(State.READY, after=before)
            assert watch.states()[-3:] == ["probing", "warming", "ready"]
            assert engine.generations() > warmed


async def test_our_own_bound_says_nothing_about_the_backend() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        asked = len(engine.requests)
        fleet.report_failure("b1", ConnectionsExhausted("b1", "full"))
        await ask(fleet)
        assert watch.states()[-1] == "ready"
        assert len(engine.requests) == asked + 1


async def test_a_failure_in_traffic_has_the_backend_asked_at_once() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        asked = engine.generations()
        fleet.report_failure("b1", StreamBroken("b1", "reset"))
        await until(lambda: engine.generations() == asked + 1)
        assert watch.states()[-1] == "ready"


async def test_a_hang_that_health_does_not_show_takes_it_down() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        engine.hanging = True
        fleet.report_failure("b1", FirstTokenTimeout("b1", "slow"))
        down = await watch.until(State.DOWN)
        assert "no answer in time" in down.reason
        engine.hanging = False
        await watch.until(State.READY, after=len(watch.seen))


async def test_busy_is_not_dead() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        engine.refuse["/v1/chat/completions"] = 503
        for expected in range(1, 4):
            asked = engine.generations()
            fleet.report_failure("b1", StreamBroken("b1", "reset"))
            await until(lambda: engine.generations() == asked + 1)  # noqa: B023
            await until(lambda: len(engine.asked("/version")) == expected + 1)  # noqa: B023
        assert watch.states()[-1] == "ready"


async def test_one_bad_answer_is_not_enough() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        engine.refuse["/v1/chat/completions"] = 500
        asked = engine.generations()
        fleet.report_failure("b1", StreamBroken("b1", "reset"))
        await until(lambda: engine.generations() == asked + 1)
        del engine.refuse["/v1/chat/completions"]
        await until(lambda: engine.generations() == asked + 2)
        await until(lambda: len(engine.asked("/version")) == 2)
        assert watch.states()[-1] == "ready"


# The breaker, and the way back into traffic

TOUCHY = replace(FAST, breaker=BreakerSettings(window=60, failures=3, ratio=0.5), ramp=0.2)


async def test_a_backend_that_fails_often_is_put_out_when_another_can_take_its_traffic() -> None:
    one, two = Engine(), Engine()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.serving())
        await stack.enter_async_context(two.serving())
        fleet, watch = await stack.enter_async_context(
            fleet_of(one.spec("b1"), two.spec("b2"), settings=TOUCHY)
        )
        await watch.until(State.READY, name="b1")
        await watch.until(State.READY, name="b2")
        one.refuse["/v1/completions"] = 500
        for _ in range(3):
            await ask(fleet)
        down = await watch.until(State.DOWN)
        assert down.reason == "fails too often, at last: answered 500"
        await watch.until(State.READY, after=watch.seen.index(down))


async def test_failures_are_forgiven_among_enough_successes() -> None:
    one, two = Engine(), Engine()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.serving())
        await stack.enter_async_context(two.serving())
        fleet, watch = await stack.enter_async_context(
            fleet_of(one.spec("b1"), two.spec("b2"), settings=TOUCHY)
        )
        await watch.until(State.READY, name="b1")
        await watch.until(State.READY, name="b2")
        for _ in range(8):
            await ask(fleet)
        for _ in range(4):
            fleet.report_failure("b1", StreamBroken("b1", "reset"))
        assert watch.states("b1")[-1] == "ready"


async def test_the_last_backend_of_its_kind_is_never_put_out_for_failing_often() -> None:
    engine, other_class, other_model = Engine(), Engine(), Engine(models=("n",))
    async with AsyncExitStack() as stack:
        for server in (engine, other_class, other_model):
            await stack.enter_async_context(server.serving())
        fleet, watch = await stack.enter_async_context(
            fleet_of(
                engine.spec("b1", classes=frozenset(("short",))),
                other_class.spec("b2", classes=frozenset(("long",))),
                other_model.spec("b3"),
                settings=TOUCHY,
            )
        )
        for name in ("b1", "b2", "b3"):
            await watch.until(State.READY, name=name)
        for _ in range(20):
            fleet.report_failure("b1", StreamBroken("b1", "reset"))
        assert watch.states("b1")[-1] == "ready"


async def test_a_backend_that_comes_back_beside_another_is_eased_in() -> None:
    one, two = Engine(), Engine()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.serving())
        await stack.enter_async_context(two.serving())
        fleet, watch = await stack.enter_async_context(
            fleet_of(one.spec("b1"), two.spec("b2"), settings=TOUCHY)
        )
        await watch.until(State.READY, name="b1")
        await watch.until(State.READY, name="b2")
        await until(lambda: all(s.share == 1.0 for s in fleet.statuses()))
        before = len(watch.seen)
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        await watch.until(State.READY, after=before)
        await until(lambda: fleet.statuses()[0].share == 1.0)
        shares = [s.share for s in watch.seen[before:] if s.state is State.READY]
        assert shares == [0.25, 0.5, 0.75, 1.0]


async def test_losing_a_backend_that_is_being_eased_in_stops_that() -> None:
    one, two = Engine(), Engine()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(two.serving())
        server = await stack.enter_async_context(AsyncExitStack())
        await server.enter_async_context(one.serving())
        fleet, watch = await stack.enter_async_context(
            fleet_of(one.spec("b1"), two.spec("b2"), settings=TOUCHY)
        )
        await watch.until(State.READY, name="b1")
        await watch.until(State.READY, name="b2")
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        eased = await watch.until(State.READY, after=len(watch.seen))
        assert eased.share == 0.25
        await server.aclose()
        lost = len(watch.seen)
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        await until(lambda: watch.states("b1").count("probing") >= 12)
        after = [s for s in watch.seen[lost:] if s.spec.name == "b1"]
        assert {s.share for s in after} == {1.0}
        assert all(earlier != later for earlier, later in pairwise(after))


def test_backoff_doubles_up_to_its_bound_and_is_drawn() -> None:
    settings = FleetSettings(backoff_first=0.5, backoff_max=30)
    rng = Random(3)
    for failures, longest in [(0, 0.5), (1, 1.0), (5, 16.0), (6, 30.0), (10_000, 30.0)]:
        drawn = [backoff(failures, settings, rng) for _ in range(100)]
        assert longest / 2 <= min(drawn) < 0.6 * longest
        assert 0.9 * longest < max(drawn) <= longest


async def test_a_server_that_stays_away_is_asked_less_and_less() -> None:
    settings = replace(FAST, backoff_first=0.02, backoff_max=10)
    dead = BackendSpec("b1", f"http://127.0.0.1:{unused_port()}")
    loop = asyncio.get_running_loop()
    async with fleet_of(dead, settings=settings) as (_, watch):
        started = loop.time()
        await until(lambda: watch.states().count("probing") > 6)
        shortest = sum(0.02 * 2**failures / 2 for failures in range(6))
        assert loop.time() - started >= shortest - 0.01


# The watch of its own accord


async def test_a_backend_that_owes_answers_and_is_silent_is_checked() -> None:
    engine = Engine()
    settings = replace(FAST, health_interval=0.05)
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (fleet, watch):
        await watch.until(State.READY)
        engine.hanging = True
        asking = start(ask(fleet))
        await watch.until(State.DOWN)
        asking.cancel()
        engine.hanging = False


async def test_tokens_in_traffic_count_for_more_than_a_check_that_hangs() -> None:
    engine = Engine()
    settings = replace(FAST, health_timeout=0.05)
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (fleet, watch):
        await watch.until(State.READY)
        stream = await fleet.client("b1").open(
            "/v1/completions", b'{"stream": true, "prompt": ""}', timeouts=Timeouts()
        )
        relaying = start(stream.relay(Collector()))
        engine.hanging = True
        checks = len(engine.asked("/v1/chat/completions"))
        fleet.report_failure("b1", FirstTokenTimeout("b1", "slow"))
        await until(lambda: len(engine.asked("/v1/chat/completions")) >= checks + 4)
        assert watch.states()[-1] == "ready"
        relaying.cancel()
        engine.hanging = False


async def test_a_new_version_is_proved_again_before_it_gets_traffic() -> None:
    engine = Engine()
    settings = replace(FAST, health_interval=0.05)
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (_, watch):
        await watch.until(State.READY)
        engine.chat_ids = "ignored"
        engine.version = "0.33.0"
        before = len(watch.seen)
        ready = await watch.until(State.READY, after=before)
        assert [s.state.value for s in watch.seen[before:]] == ["probing", "warming", "ready"]
        assert ready.capabilities is not None
        assert (ready.capabilities.version, ready.capabilities.chat) == ("0.33.0", Channel.TEXT)


async def test_a_version_that_cannot_be_told_for_now_changes_nothing() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        engine.refuse["/version"] = 503
        for asked in (2, 3):
            fleet.report_failure("b1", StreamBroken("b1", "reset"))
            await until(lambda: len(engine.asked("/version")) == asked)  # noqa: B023
        assert watch.states() == ["probing", "warming", "ready"]


async def test_an_idle_backend_is_kept_warm_and_one_in_use_is_not() -> None:
    engine = Engine()
    settings = replace(FAST, warm=replace(FAST.warm, keep_after=0.1))
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (fleet, watch):
        await watch.until(State.READY)
        warmed = len(engine.asked("/v1/chat/completions"))
        loop = asyncio.get_running_loop()
        busy_until = loop.time() + 0.3
        while loop.time() < busy_until:
            await ask(fleet)
        assert len(engine.asked("/v1/chat/completions")) == warmed
        await until(lambda: len(engine.asked("/v1/chat/completions")) >= warmed + 2)
        assert watch.states()[-1] == "ready"


async def test_a_client_as_seldom_as_the_keep_warm_requests_does_not_meet_each_of_them() -> None:
    settings = replace(FAST, warm=replace(FAST.warm, keep_after=600.0))
    engine, drawn = Engine(), Early()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine.serving())
        fleet = fleet_of(engine.spec(), settings=settings, rng=drawn)
        _, watch = await stack.enter_async_context(fleet)
        await watch.until(State.READY)
        warmed = len(engine.asked("/v1/chat/completions"))
        await until(lambda: len(engine.asked("/v1/chat/completions")) > warmed)
    assert (0.8, 1.0) in drawn.between


class Early(Random):
    """Draws what is next to nothing, and keeps between what it was to draw."""

    def __init__(self) -> None:
        super().__init__(1)
        self.between: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.between.append((a, b))
        return 1e-4


async def test_an_idle_backend_that_died_is_found_by_its_keep_warm_request() -> None:
    settings = replace(FAST, warm=replace(FAST.warm, keep_after=0.05), health_strikes=1000)
    engine = Engine()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(AsyncExitStack())
        await server.enter_async_context(engine.serving())
        _, watch = await stack.enter_async_context(fleet_of(engine.spec(), settings=settings))
        await watch.until(State.READY)
        await server.aclose()
        await watch.until(State.DOWN)


# Connections kept for the next request

SPARE = replace(FAST, client=ClientLimits(idle=0.2, spare=2))


async def test_after_any_idleness_a_request_finds_an_open_connection() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=SPARE) as (fleet, watch):
        await watch.until(State.READY)
        client = fleet.client("b1")
        generations = engine.generations()
        for renewals in range(1, 4):
            await until(lambda: client.connects >= 4 + 2 * renewals)  # noqa: B023
            reuses = client.reuses
            await ask(fleet)
            assert client.reuses == reuses + 1
        assert engine.generations() == generations + 3, "renewing asks the engine for nothing"
        assert client.stale_retries == 0


async def test_connections_in_use_are_renewed_by_their_use() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=SPARE) as (fleet, watch):
        await watch.until(State.READY)
        await asyncio.gather(ask(fleet), ask(fleet))
        client = fleet.client("b1")
        connects = client.connects
        await client.renew(Timeouts())
        assert client.connects == connects


async def test_a_server_that_died_in_idleness_is_noticed_without_a_request() -> None:
    engine = Engine()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(AsyncExitStack())
        await server.enter_async_context(engine.serving())
        _, watch = await stack.enter_async_context(fleet_of(engine.spec(), settings=SPARE))
        await watch.until(State.READY)
        await server.aclose()
        down = await watch.until(State.DOWN)
        assert "cannot connect" in down.reason
