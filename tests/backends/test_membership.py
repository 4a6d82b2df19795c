"""Backends join and leave a fleet that is at work."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from backends.errors import ConnectFailed
from backends.types import State, Timeouts
from tests.backends.engine import Engine
from tests.backends.fleets import FAST, ask, fleet_of
from tests.backends.scripted import start, until

QUICK = replace(FAST, linger=0.02)


async def test_a_backend_that_joins_takes_the_same_way_into_traffic() -> None:
    one, two = Engine(), Engine()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.serving())
        await stack.enter_async_context(two.serving())
        fleet, watch = await stack.enter_async_context(fleet_of(one.spec("b1"), settings=QUICK))
        await watch.until(State.READY)
        fleet.add(two.spec("b2"))
        await watch.until(State.READY, name="b2")
        assert watch.states("b2") == ["probing", "warming", "ready"]
        assert b"prompt_tokens" in await ask(fleet, "b2")
        with pytest.raises(ValueError, match="same name"):
            fleet.add(two.spec("b2"))
        assert [s.spec.name for s in fleet.statuses()] == ["b1", "b2"]


async def test_a_backend_that_leaves_finishes_its_streams_and_is_gone() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        engine.first_token_delays = [0.2]
        asking = start(ask(fleet))
        await until(lambda: fleet.client("b1").in_flight > 0)
        assert await fleet.remove("b1", 5)
        assert b"prompt_tokens" in await asking
        assert watch.states()[-1] == "draining"
        assert fleet.statuses() == ()
        assert fleet.own_traffic() == {}
        with pytest.raises(ConnectFailed, match="removed"):
            fleet.client("b1")
        with pytest.raises(KeyError):
            await fleet.remove("b1", 5)
        asked = len(engine.requests)
        fleet.add(engine.spec())
        await watch.until(State.READY, after=len(watch.seen))
        assert len(engine.requests) > asked, "the same name is another backend now"


async def test_a_request_on_its_way_to_a_leaving_backend_is_served() -> None:
    engine = Engine()
    settings = replace(FAST, linger=0.3)
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (fleet, watch):
        await watch.until(State.READY)
        removing = start(fleet.remove("b1", 5))
        await watch.until(State.DRAINING)
        await asyncio.sleep(0.05)
        engine.first_token_delays = [0.5]
        assert b"prompt_tokens" in await ask(fleet)
        assert await removing


async def test_a_stream_without_end_does_not_keep_a_leaving_backend() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        stream = await fleet.client("b1").open(
            "/v1/completions", b'{"stream": true, "prompt": ""}', timeouts=Timeouts()
        )
        assert await fleet.remove("b1", 0.05)
        assert fleet.statuses() == ()
        stream.abort()


async def test_a_leaving_backend_may_be_taken_back() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        removing = start(fleet.remove("b1", 5))
        await watch.until(State.DRAINING)
        before = len(watch.seen)
        fleet.readmit("b1")
        assert not await removing
        await watch.until(State.READY, after=before)
        assert b"prompt_tokens" in await ask(fleet)


async def test_a_backend_is_removed_once_however_often_that_is_asked() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        both = await asyncio.gather(fleet.remove("b1", 5), fleet.remove("b1", 5))
        assert sorted(both) == [False, True]


async def test_what_relays_have_open_keeps_a_leaving_backend() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        fleet.reports.report("r1", "b1", in_flight=1, heard_at=0.0, used_at=0.0)
        removing = start(fleet.remove("b1", 5))
        await watch.until(State.DRAINING)
        await asyncio.sleep(0.1)
        assert not removing.done()
        fleet.reports.report("r1", "b1", in_flight=0, heard_at=0.0, used_at=0.0)
        assert await removing


async def test_what_the_operator_says_of_a_backend_changes_without_a_new_proof() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec(), settings=QUICK) as (fleet, watch):
        await watch.until(State.READY)
        asked = len(engine.requests)
        fleet.update(engine.spec(limit=3))
        assert watch.seen[-1].spec.limit == 3
        assert watch.seen[-1].state is State.READY
        assert len(engine.requests) == asked


async def test_a_backend_that_was_added_is_ended_with_the_fleet() -> None:
    before = len(asyncio.all_tasks())
    engine = Engine(hanging=True)
    async with engine.serving(), fleet_of() as (fleet, _):
        fleet.add(engine.spec())
        await until(lambda: engine.generations() > 0)
    await until(lambda: len(asyncio.all_tasks()) == before)
