"""Slots of a backend between gateways, on a real Redis: never too many, none left idle."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from bench.demo import free_port
from gateway.replicas.shares import LEASE
from tests.gateway.replicas.gateways import Sharer, until
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow


@asynccontextmanager
async def sharers(
    redis: str | None, count: int, capacity: int, **settings: float
) -> AsyncIterator[list[Sharer]]:
    started = [Sharer(redis, capacity, **settings) for _ in range(count)]  # type: ignore[arg-type]
    try:
        yield started
    finally:
        for sharer in started:
            await sharer.stop()


def shares(all_of_them: list[Sharer]) -> Callable[[], list[int]]:
    return lambda: sorted(sharer.may_use for sharer in all_of_them)


async def test_idle_gateways_share_equally_and_completely(redis: Redis) -> None:
    async with sharers(url_of(redis), 3, 64) as three:
        await until(lambda: shares(three)() == [21, 21, 22])


async def test_slots_follow_demand_within_a_second(redis: Redis) -> None:
    async with sharers(url_of(redis), 3, 60) as three:
        await until(lambda: shares(three)() == [20, 20, 20])
        busy, *others = three
        busy.wants = 50
        assert await until(lambda: busy.may_use >= 50) < 1.0
        assert sum(shares(three)()) <= 60
        for sharer in others:
            sharer.wants = 50
        assert await until(lambda: shares(three)() == [20, 20, 20]) < 1.0


async def test_fewer_slots_than_gateways_go_round(redis: Redis) -> None:
    async with sharers(url_of(redis), 3, 1) as three:
        for sharer in three:
            sharer.wants = 5
        had: set[int] = set()

        def all_had_one() -> bool:
            had.update(n for n, sharer in enumerate(three) if sharer.may_use)
            assert sum(shares(three)()) <= 1
            return len(had) == 3

        await until(all_had_one, 8.0)


async def test_what_is_in_flight_never_exceeds_the_limit(redis: Redis) -> None:
    """Random demand and random ends at three gateways: the sum is checked at each step."""
    draw = random.Random(7)
    async with sharers(url_of(redis), 3, 8) as three:
        most = 0
        for step in range(20_000):
            if step >= 1500 and most >= 7 and sum(each.changes for each in three) > 6:
                break
            sharer = draw.choice(three)
            if step % 50 == 0:
                sharer.wants = draw.choice((0, 1, 5, 20))
            sharer.take()
            for each in three:
                if each.used and draw.random() < 0.1:
                    each.used -= 1
            total = sum(each.used for each in three)
            assert total <= 8
            most = max(most, total)
            await asyncio.sleep(0.001)
        assert most >= 7
        assert sum(sharer.changes for sharer in three) > 6


async def test_who_leaves_frees_its_slots_at_once(redis: Redis) -> None:
    async with sharers(url_of(redis), 2, 10) as (stays, leaves):
        await until(lambda: stays.may_use == leaves.may_use == 5)
        stays.wants = 10
        leaves.wants = 5
        await until(lambda: stays.may_use == 5)
        await leaves.stop()
        assert await until(lambda: stays.may_use == 10) < 1.0


async def test_who_dies_frees_its_slots_at_the_end_of_its_time(redis: Redis) -> None:
    """A gateway that was killed has no last word: its entry is what it said last."""
    redis.eval(LEASE, 1, "forebay.lease:backend:b", "dead", 1000, 10, 0, 0, 0)
    async with sharers(url_of(redis), 1, 10, ttl=1.0) as (lives,):
        lives.wants = 10
        await until(lambda: lives.sharing.up)
        assert lives.may_use == 0
        assert await until(lambda: lives.may_use == 10) < 2.0


async def test_a_limit_that_is_lowered_is_kept_as_soon_as_requests_end(redis: Redis) -> None:
    async with sharers(url_of(redis), 2, 10) as two:
        for sharer in two:
            sharer.wants = 5
        await until(lambda: shares(two)() == [5, 5])
        for sharer in two:
            while sharer.take():
                pass
            sharer.sharing.configure({"backend:b": 4}, {})
        await until(lambda: sum(shares(two)()) <= 4)
        for sharer in two:
            sharer.used = 2
        await until(lambda: shares(two)() == [2, 2])


async def test_without_redis_the_operator_says_how_many_share(tmp_path: Path) -> None:
    async with sharers(None, 1, 64, expected=3) as (alone,):
        assert alone.may_use == 21
    async with sharers(f"redis://127.0.0.1:{free_port()}", 1, 64, expected=2) as (alone,):
        assert alone.may_use == 0
        await until(lambda: alone.may_use == 32)


async def test_a_lost_redis_leaves_the_shares_as_they_are(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    with redis_server(tmp_path, port):
        started = [Sharer(url, 60) for _ in range(3)]
        await until(lambda: shares(started)() == [20, 20, 20])
    await until(lambda: not any(sharer.sharing.up for sharer in started))
    assert shares(started)() == [20, 20, 20]
    with redis_server(tmp_path, port):
        await until(lambda: all(sharer.sharing.up for sharer in started))
        started[0].wants = 60
        await until(lambda: started[0].may_use > 50)
        assert sum(shares(started)()) <= 60
    for sharer in started:
        await sharer.stop()
