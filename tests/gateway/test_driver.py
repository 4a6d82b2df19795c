"""Gate and driver: every permit is given back once, whatever ends the wait or the work."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.driver import Driver
from gateway.errors import Rejected
from gateway.gate import Gate, Permit
from gateway.tasks import Tasks
from scheduler.events import BackendChanged, Decided, Reason
from scheduler.model import Backend, BackendState, ClassSpec, Settings, Ticket

SETTINGS = Settings(classes=(ClassSpec("short", 100), ClassSpec("long")), queue_wait=0.05)


def ticket(name: str) -> Ticket:
    return Ticket(name, "m", 10)


def driver(settings: Settings = SETTINGS, *, limit: int = 1) -> Driver:
    decided: list[Decided] = []
    made = Driver(settings, decided.append)
    made.apply(BackendChanged(Backend("b", BackendState.READY, frozenset({"m"}), limit=limit)))
    return made


def in_flight(of: Driver) -> int:
    return of.snapshot().backends[0].in_flight


def queued(of: Driver) -> int:
    return sum(pool.queued for pool in of.snapshot().pools)


async def test_a_permit_is_given_back_when_its_block_ends() -> None:
    d = driver()
    with await Gate(d).admit(ticket("1")) as permit:
        assert (permit.backend, permit.service_class) == ("b", "short")
        assert in_flight(d) == 1
    assert in_flight(d) == 0


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_a_permit_is_given_back_when_its_block_fails(error: type[BaseException]) -> None:
    d = driver()
    with pytest.raises(error), await Gate(d).admit(ticket("1")):
        raise error
    assert in_flight(d) == 0


async def test_a_permit_cannot_be_given_back_twice() -> None:
    d = driver()
    with await Gate(d).admit(ticket("1")) as permit:
        pass
    with pytest.raises(RuntimeError):
        permit.__exit__(None, None, None)


async def test_a_waiting_ticket_gets_the_slot_that_is_given_back() -> None:
    d, tasks = driver(), Tasks()
    with await Gate(d).admit(ticket("1")):
        waiting = tasks.spawn("wait", Gate(d).admit(ticket("2")))
        await asyncio.sleep(0)
        assert queued(d) == 1
    with await waiting as permit:
        assert permit.ticket_id == "2"
    assert in_flight(d) == 0


async def test_a_ticket_expires_at_its_time_without_any_other_event() -> None:
    d = driver()
    with await Gate(d).admit(ticket("1")), pytest.raises(Rejected) as caught:
        await asyncio.wait_for(Gate(d).admit(ticket("2")), 5)
    assert caught.value.reason is Reason.EXPIRED
    assert queued(d) == in_flight(d) == 0


async def cancelled(tasks: Tasks, waiting: Coroutine[Any, Any, Permit], before: Any) -> None:
    task = tasks.spawn("wait", waiting)
    await asyncio.sleep(0)
    before()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_wait_leaves_the_queue() -> None:
    d, tasks = driver(), Tasks()
    with await Gate(d).admit(ticket("1")):
        await cancelled(tasks, Gate(d).admit(ticket("2")), before=lambda: None)
        assert queued(d) == 0


async def test_a_wait_cancelled_in_the_very_turn_it_was_granted_gives_the_slot_back() -> None:
    d, tasks = driver(), Tasks()
    first = await Gate(d).admit(ticket("1"))
    give_back = lambda: first.__exit__(None, None, None)  # noqa: E731
    await cancelled(tasks, Gate(d).admit(ticket("2")), before=give_back)
    assert queued(d) == in_flight(d) == 0


async def test_a_wait_cancelled_in_the_very_turn_it_was_refused_leaves_no_trace() -> None:
    d, tasks = driver(), Tasks()
    with await Gate(d).admit(ticket("1")):
        await cancelled(tasks, Gate(d).admit(ticket("2")), before=d.drain)
    assert queued(d) == in_flight(d) == 0


async def test_a_drain_refuses_what_waits_and_what_comes() -> None:
    d, tasks = driver(), Tasks()
    with await Gate(d).admit(ticket("1")):
        waiting = tasks.spawn("wait", Gate(d).admit(ticket("2")))
        await asyncio.sleep(0)
        d.drain()
        for refused in (waiting, Gate(d).admit(ticket("3"))):
            with pytest.raises(Rejected) as caught:
                await refused
            assert caught.value.reason is Reason.DRAINING
    tasks.failed = 0  # the refusal above is the point, not a bug
