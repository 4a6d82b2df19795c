"""Traffic that flows elsewhere and is reported counts as traffic that flows here."""

import asyncio
from dataclasses import replace
from time import monotonic

from backends.errors import ConnectFailed
from backends.traffic import ReportedTraffic, TrafficReports
from backends.types import State
from tests.backends.engine import Engine
from tests.backends.fleets import FAST, fleet_of
from tests.backends.scripted import start, until


class Own:
    """This process's own traffic, set by the test."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.used_at = 1.0
        self.heard_at = 2.0
        self.unused = asyncio.Event()

    @property
    def idle_since(self) -> float | None:
        return None if self.in_flight else self.used_at

    async def until_unused(self, within: float) -> bool:
        if self.in_flight:
            async with asyncio.timeout(within):
                await self.unused.wait()
        return True


def state(traffic: ReportedTraffic) -> tuple[int, float | None, float]:
    return traffic.in_flight, traffic.idle_since, traffic.heard_at


async def test_what_several_processes_report_is_one_traffic() -> None:
    own = Own()
    traffic = ReportedTraffic(own)
    assert state(traffic) == (0, 1.0, 2.0)
    traffic.report("r1", 2, heard_at=5.0, used_at=4.0)
    traffic.report("r2", 3, heard_at=3.0, used_at=6.0)
    assert state(traffic) == (5, None, 5.0)
    traffic.report("r1", 0, heard_at=7.0, used_at=7.0)
    assert state(traffic) == (3, None, 7.0)
    traffic.report("r2", 0, heard_at=6.0, used_at=6.5)
    assert state(traffic) == (0, 7.0, 7.0)
    own.in_flight = 1
    assert state(traffic) == (1, None, 7.0)


async def test_the_exchanges_of_a_process_that_died_ended_with_it() -> None:
    traffic = ReportedTraffic(Own())
    traffic.report("r1", 2, heard_at=5.0, used_at=4.0)
    before = monotonic()
    traffic.forget("r1")
    assert traffic.in_flight == 0
    assert traffic.idle_since is not None
    assert before <= traffic.idle_since <= monotonic()
    traffic.forget("nobody")


async def test_draining_waits_for_what_is_reported() -> None:
    traffic = ReportedTraffic(Own())
    traffic.report("r1", 1, heard_at=0.0, used_at=0.0)
    traffic.report("r2", 1, heard_at=0.0, used_at=0.0)
    assert not await traffic.until_unused(0.02)
    waiting = start(traffic.until_unused(10))
    traffic.report("r1", 0, heard_at=0.0, used_at=0.0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    traffic.forget("r2")
    assert await waiting


async def test_reports_of_a_backend_that_is_gone_are_nothing() -> None:
    reports = TrafficReports()
    traffic = reports.begin("b1", Own())
    reports.end("b1")
    reports.report("r1", "b1", in_flight=3, heard_at=1.0, used_at=1.0)
    assert traffic.in_flight == 0


# What a fleet makes of it


async def test_a_backend_that_relays_use_is_not_kept_warm_until_they_stop() -> None:
    engine = Engine()
    settings = replace(FAST, warm=replace(FAST.warm, keep_after=0.05), health_interval=60)
    async with engine.serving(), fleet_of(engine.spec(), settings=settings) as (fleet, watch):
        await watch.until(State.READY)
        now = monotonic()
        fleet.reports.report("r1", "b1", in_flight=1, heard_at=now, used_at=now)
        await asyncio.sleep(0)
        asked = engine.generations()
        await asyncio.sleep(0.2)  # four times as long as it may idle
        assert engine.generations() == asked
        fleet.reports.forget("r1")
        await until(lambda: engine.generations() > asked)


async def test_relays_answers_and_failures_decide_on_the_backend_s_life() -> None:
    engine = Engine()
    async with engine.serving(), fleet_of(engine.spec()) as (fleet, watch):
        await watch.until(State.READY)
        asked = engine.generations()
        fleet.answered("b1", 500)
        await until(lambda: engine.generations() == asked + 1)
        fleet.answered("nobody", 500)
        fleet.report_failure("nobody", ConnectFailed("nobody", "x"))
        fleet.report_failure("b1", ConnectFailed("b1", "refused"))
        assert watch.states()[-1] == "down"
