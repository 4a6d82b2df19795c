"""What Forebay cannot read or did not expect in Redis: it is named, and control goes on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from gateway.config import Config
from gateway.control import Control, reader, versions
from gateway.control.keys import HISTORY, REJECTED, VERSION
from gateway.control.store import BrokenKey, connect
from gateway.control.versions import Change, Stamp
from gateway.tasks import Tasks
from tests.gateway.control.parts import Following, config
from tests.redis_server import url_of

SHORT = "forebay:class:short"


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"])
async def test_a_time_that_utc_does_not_have_is_refused_by_name(redis: Redis, time: str) -> None:
    async with Following(url_of(redis)) as following:
        key = {"tenant": "a", "sha256": "0" * 64, "expires": time}
        redis.hset("forebay:key:k", mapping=key)
        assert "expires: the time is out of range" in (await following.next())["forebay:key:k"]
        redis.delete("forebay:key:k")
        assert await following.next() == {}
        redis.hset(SHORT, "limit", "3")
        assert (await following.next()).classes["short"].limit == 3


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_bytes_that_are_not_utf8_are_refused_by_name(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:tenant:acme", mapping={"weight": b"\xfc"})
        assert "weight: is not UTF-8" in (await following.next())["forebay:tenant:acme"]
        redis.hset(b"forebay:tenant:f\xfcr", "weight", "1")
        reasons = await following.next()
        assert "the key's name is not UTF-8" in reasons["forebay:tenant:f\ufffdr"]
        await following.until(lambda: redis.hgetall(REJECTED) == reasons)
        redis.delete(b"forebay:tenant:f\xfcr", "forebay:tenant:acme")
        await following.until(lambda: following.control.reasons == {})
        redis.hset(SHORT, "limit", "3")
        await following.until(lambda: following.control.effective.classes["short"].limit == 3)


BROKEN: list[tuple[str, dict[str, str] | None, str]] = [
    (VERSION, {"number": "abc"}, "its number is not one of ours"),
    (VERSION, {"number": "9" * 13}, "its number is not one of ours"),
    (VERSION, {"number": "1", "state": "{"}, "its state cannot be read"),
    (VERSION, {"number": "1", "state": '{"forebay:burst": {"window": 5}}'}, "not a mapping"),
    (VERSION, {"number": "1", "state": "[]"}, "not a mapping"),
    (VERSION, None, "is not a hash"),
    (HISTORY, None, "is not a stream"),
]

IN_THE_WAY = [case for case in BROKEN if "state" not in (case[1] or {})]
"""A version writes over the last state and does not read it."""


def put(redis: Redis, key: str, fields: dict[str, str] | None) -> None:
    redis.delete(key)
    if fields is None:
        redis.set(key, "x")
    else:
        redis.hset(key, mapping=dict(fields))


@pytest.mark.parametrize(("key", "fields", "words"), BROKEN)
async def test_a_key_of_ours_that_cannot_be_read_costs_versions_until_it_is_gone(
    redis: Redis, key: str, fields: dict[str, str] | None, words: str
) -> None:
    async with Following(url_of(redis)) as following:
        redis.hset("forebay:burst", "prompt_tokens", "99")
        await following.next()
        await following.until(lambda: following.control.version == 1)
        put(redis, key, fields)
        redis.hset(SHORT, "limit", "3")
        assert (await following.next()).classes["short"].limit == 3
        await following.until(lambda: words in str(redis.hget(REJECTED, key)))
        assert f"DEL {key}" in following.control.reasons[key]
        assert following.control.up is True
        redis.delete(key)
        await following.until(lambda: following.control.version == 2)
        assert following.control.reasons == {}
        await following.until(lambda: not redis.exists(REJECTED))
        assert redis.hget(VERSION, "number") == "2"


@pytest.mark.parametrize(("key", "fields", "words"), IN_THE_WAY)
async def test_nothing_is_changed_while_its_version_cannot_be_made(
    redis: Redis, key: str, fields: dict[str, str] | None, words: str
) -> None:
    client = connect(url_of(redis))
    seen = await reader.read(client, [SHORT])
    put(redis, key, fields)
    with pytest.raises(BrokenKey, match=f"{key}: {words}: DEL {key}"):
        await versions.commit(client, seen, [Change(SHORT, "limit", None, "1")], Stamp("ann"))
    assert not redis.exists(SHORT)
    await client.aclose()


async def test_an_emptied_redis_with_a_broken_version_takes_no_settings_away(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        redis.hset(SHORT, "limit", "3")
        good = await following.next()
        await following.up()
        with redis.pipeline(transaction=True) as pipe:
            pipe.flushall()
            pipe.set(VERSION, "x")
            pipe.execute()
        await following.until(lambda: following.control.up is False)
        assert following.control.effective is good
        redis.delete(VERSION)
        await following.until(lambda: redis.hget(SHORT, "limit") == "3")
        assert following.told.empty()


async def test_what_nobody_expected_is_tried_again_and_told_meanwhile(redis: Redis) -> None:
    """The failure is one of ours, in what puts settings in force."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    fails = False

    def accepted(new: Config) -> None:
        told.put_nowait(new)
        if fails:
            raise RuntimeError("a bug of ours")

    control, tasks = Control(config(url_of(redis)), accepted, told.put_nowait), Tasks()
    tasks.keep("control", control.follow)
    await until(lambda: control.up is True)
    fails = True
    redis.hset(SHORT, "limit", "3")
    for _ in range(2):
        await asyncio.wait_for(told.get(), 10)
        await until(lambda: control.up is False)
        assert control.effective.classes["short"].limit is None
    fails = False
    assert (await asyncio.wait_for(told.get(), 10)).classes["short"].limit == 3
    await until(lambda: control.up is True)
    assert tasks.failed == 2
    await tasks.stop()
    assert len(tasks) == 0
