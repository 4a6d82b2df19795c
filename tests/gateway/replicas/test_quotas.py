"""A tenant's quota through several gateways, on a real Redis."""

import asyncio
import time
from pathlib import Path

import pytest
from redis import Redis

from bench.demo import free_port
from gateway.replicas.config import ReplicasConfig
from gateway.replicas.sharing import Sharing
from gateway.tasks import Tasks
from gateway.tenancy.account import Account
from tests.gateway.replicas.gateways import until
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow


class Spender:
    """One gateway with one account."""

    def __init__(self, redis: str, limit: int) -> None:
        self.sharing = Sharing(redis, ReplicasConfig(), tuple, lambda _: None)
        self.sharing.configure({}, {"acme:requests": limit})
        self.tasks = Tasks()
        self.tasks.spawn("sharing", self.sharing.run())
        self.accepted = 0

    @property
    def account(self) -> Account:
        return self.sharing.accounts["acme:requests"]

    def offer(self, amount: int = 1) -> bool:
        now = time.monotonic()
        if self.account.room(amount, now):
            self.account.spend(amount, now)
            self.accepted += amount
            return True
        self.account.refused(amount)
        self.sharing.hurry()
        return False

    async def stop(self) -> None:
        await self.tasks.stop()
        assert self.tasks.failed == 0


async def ready(spenders: list[Spender]) -> None:
    await until(
        lambda: all(s.account.shared and s.account.replicas == len(spenders) for s in spenders)
    )


async def test_ten_thousand_requests_through_three_gateways(redis: Redis) -> None:
    """Unevenly offered, as fast as it goes: never more than the limit, and 99% of it at least."""
    limit = 5000
    three = [Spender(url_of(redis), limit) for _ in range(3)]
    await ready(three)
    for number in range(10_000):
        three[(0, 0, 0, 1, 1, 2)[number % 6]].offer()
        if number % 20 == 0:
            await asyncio.sleep(0.005)
    total = sum(spender.accepted for spender in three)
    assert 0.99 * limit <= total <= limit
    for spender in three:
        await spender.stop()


async def test_one_gateway_alone_gets_the_whole_limit(redis: Redis) -> None:
    """What idle gateways hold goes to the one that needs it."""
    three = [Spender(url_of(redis), 900) for _ in range(3)]
    await ready(three)
    for number in range(3000):
        three[0].offer()
        if number % 10 == 0:
            await asyncio.sleep(0.004)
    assert 891 <= three[0].accepted <= 900
    for spender in three:
        await spender.stop()


async def test_a_burst_within_the_gateways_part_is_not_refused(redis: Redis) -> None:
    two = [Spender(url_of(redis), 600) for _ in range(2)]
    await ready(two)
    await until(lambda: two[0].account.held >= 290)
    assert all(two[0].offer() for _ in range(290))
    for spender in two:
        await spender.stop()


async def test_a_large_request_gets_through_after_others_gave_back(redis: Redis) -> None:
    three = [Spender(url_of(redis), 9000) for _ in range(3)]
    await ready(three)
    assert not three[0].offer(8000)
    await until(lambda: three[0].offer(8000))
    for spender in three:
        await spender.stop()


async def test_what_a_minute_ago_was_spent_is_forgotten_by_the_script(redis: Redis) -> None:
    slot = int(time.time() / 0.5)
    redis.hset("forebay.quota:acme:requests", f"s{slot - 200}", 100)
    redis.hset("forebay.quota:acme:requests", f"s{slot - 60}", 40)
    redis.hset("forebay.quota:acme:requests", "born", 1)
    spender = Spender(url_of(redis), 100)
    await until(lambda: spender.account.shared)
    assert spender.account.view(time.monotonic()).remaining == 60
    await spender.stop()


async def test_without_redis_each_gateway_spends_its_share(tmp_path: Path) -> None:
    port = free_port()
    with redis_server(tmp_path, port):
        three = [Spender(f"redis://127.0.0.1:{port}", 90) for _ in range(3)]
        await ready(three)
    await until(lambda: not any(spender.sharing.up for spender in three))
    for spender in three:
        for _ in range(60):
            spender.offer()
    assert [spender.accepted for spender in three] == [30, 30, 30]
    with redis_server(tmp_path, port) as fresh:
        await until(lambda: all(spender.account.shared for spender in three))
        await until(lambda: three[0].account.view(time.monotonic()).remaining == 0)
        assert (
            sum(
                int(v)
                for k, v in fresh.hgetall("forebay.quota:acme:requests").items()
                if k[0] == "s"
            )
            == 90
        )
        assert not any(spender.offer() for spender in three)
    for spender in three:
        await spender.stop()
