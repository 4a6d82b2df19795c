"""Operators' keys on a real Redis: what is put in force, what is refused, and how soon."""

import asyncio
import time

import pytest
from redis import Redis

from bench.control.invalid import INVALID
from gateway.control import REJECTED, Control
from gateway.control.versions import history
from tests.gateway.control.parts import Following, config
from tests.redis_server import url_of


async def test_a_hundred_changes_are_each_in_force_within_a_second(redis: Redis) -> None:
    """One at a time, from the HSET to the new settings; the slowest is the p99 of a hundred."""
    took = []
    async with Following(url_of(redis)) as following:
        await following.up()
        assert following.control.noticed_by == "tracking"
        for number in range(100):
            began = time.monotonic()
            redis.hset("forebay:class:short", "limit", str(number + 1))
            accepted = await following.next()
            took.append(time.monotonic() - began)
            assert accepted.classes["short"].limit == number + 1
            assert following.control.version == number + 1
    assert max(took) < 1.0, sorted(took)[-3:]


async def test_without_tracking_keys_are_polled_and_new_ones_are_found(redis: Redis) -> None:
    redis.execute_command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-client")
    port = redis.connection_pool.connection_kwargs["port"]
    async with Following(f"redis://plain:pw@127.0.0.1:{port}") as following:
        await following.up()
        assert following.control.noticed_by == "polling"
        for limit in range(1, 4):
            began = time.monotonic()
            redis.hset("forebay:class:short", "limit", limit)
            assert (await following.next()).classes["short"].limit == limit
            assert time.monotonic() - began < 1.0
        began = time.monotonic()
        redis.hset("forebay:tenant:acme", "weight", "2")
        assert (await following.next()).tenants["acme"].weight == 2
        assert time.monotonic() - began < 1.5


async def test_deleting_a_field_or_a_key_brings_the_file_back(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:class:short", mapping={"limit": "9", "queue_limit": "7"})
        await following.next()
        redis.hdel("forebay:class:short", "limit")
        accepted = await following.next()
        assert (accepted.classes["short"].limit, accepted.classes["short"].queue_limit) == (None, 7)
        redis.delete("forebay:class:short")
        assert (await following.next()) == config(url_of(redis))


async def test_an_invalid_change_is_reported_and_changes_nothing(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        redis.hset("forebay:class:short", mapping={"limit": "9", "queue_limit": "lots"})
        reasons = await following.next()
        assert "queue_limit" in reasons["forebay:class:short"]
        await following.until(lambda: redis.hgetall(REJECTED) == reasons)
        assert following.control.reasons == reasons
        assert following.control.version == 0
        redis.hset("forebay:class:short", "queue_limit", "7")
        seen = [await following.next(), await following.next()]
        assert seen[0].classes["short"].limit == 9
        assert seen[1] == {}
        await following.until(lambda: not redis.exists(REJECTED))


@pytest.mark.parametrize("part", range(4))
async def test_no_invalid_change_has_an_effect(redis: Redis, part: int) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:class:short", "limit", "5")
        good = await following.next()
        for key, fields, words in INVALID[part::4]:
            before = redis.hgetall(key)
            if fields is None:
                redis.delete(key)
                redis.set(key, "a string")
            else:
                redis.hset(key, mapping=dict(fields))
            reasons = await following.next()
            assert words in str(reasons)
            await following.until(lambda r=reasons: redis.hgetall(REJECTED) == r)  # type: ignore[misc]
            assert following.control.effective is good
            assert following.control.version == 1
            with redis.pipeline() as pipe:
                pipe.delete(key)
                if before:
                    pipe.hset(key, mapping=before)
                pipe.execute()
            assert await following.next() == {}
        assert following.told.empty()


async def test_ten_thousand_stray_keys_are_counted_and_disturb_nobody(redis: Redis) -> None:
    with redis.pipeline() as pipe:
        for number in range(5000):
            pipe.hset(f"forebay:class:lost-{number}", "limit", "1")
            pipe.set(f"forebay:junk:{number}", "x")
        pipe.execute()
    async with Following(url_of(redis)) as following:
        await following.up()
        assert following.control.refusals.strays == 10_000
        assert len(redis.hgetall(REJECTED)) == 20
        began = time.monotonic()
        redis.hset("forebay:class:short", "limit", "5")
        assert (await following.next()).classes["short"].limit == 5
        assert time.monotonic() - began < 1.0
        redis.delete(*redis.keys("forebay:class:lost-*"), *redis.keys("forebay:junk:*"))
        await following.until(lambda: following.control.refusals.strays == 0)
        await following.until(lambda: not redis.exists(REJECTED))


async def test_changes_of_one_transaction_are_one_version(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        with redis.pipeline(transaction=True) as pipe:
            pipe.hset("forebay:class:short", "max_prompt_tokens", "none")
            pipe.hset("forebay:class:long", "max_prompt_tokens", "4096")
            pipe.execute()
        accepted = await following.next()
        assert accepted.classes["long"].max_prompt_tokens == 4096
        assert following.control.version == 1
        assert following.told.empty()


async def test_several_gateways_make_one_version_of_a_change(redis: Redis) -> None:
    url = url_of(redis)
    async with Following(url) as one, Following(url) as two, Following(url) as three:
        for following in (one, two, three):
            await following.up()
        for limit in range(1, 11):
            redis.hset("forebay:class:short", "limit", limit)
            for following in (one, two, three):
                assert (await following.next()).classes["short"].limit == limit
                await following.until(lambda f=following, v=limit: f.control.version == v)  # type: ignore[misc]
    assert redis.hget("forebay:version", "number") == "10"
    assert redis.xlen("forebay:history") == 10


async def test_the_history_names_a_client_that_is_still_there(redis: Redis) -> None:
    redis.client_setname("alice")
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:class:short", "limit", "5")
        await following.next()
        from gateway.control.store import connect

        asking = connect(url_of(redis))
        (entry,) = await history(asking)
        await asking.aclose()
    assert entry.version == 1
    assert entry.by.startswith("alice 127.0.0.1:")
    assert [tuple(change) for change in entry.changes] == [
        ("forebay:class:short", "limit", None, "5")
    ]


async def test_without_redis_there_is_nothing_to_follow() -> None:
    control = Control(config(), pytest.fail, pytest.fail)
    await asyncio.wait_for(control.follow(), 5)
    assert control.up is None
