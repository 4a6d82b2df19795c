"""Changes on a real Redis: all of it or nothing, and never over somebody else's."""

import asyncio

import pytest
from redis import Redis

from gateway.control import reader, versions
from gateway.control.store import connect
from gateway.control.versions import Change, Moved, Stamp
from tests.redis_server import url_of

KEY = "forebay:class:short"


async def test_of_two_operators_who_looked_at_once_one_has_to_look_again(redis: Redis) -> None:
    client = connect(url_of(redis))
    seen = await reader.read(client, [KEY])

    async def change(value: str) -> int:
        stamp = Stamp(value, version=0)
        return await versions.commit(client, seen, [Change(KEY, "limit", None, value)], stamp)

    results = await asyncio.gather(*(change(str(n)) for n in range(5)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Moved"] * 4 + ["int"]
    assert redis.hget("forebay:version", "number") == "1"
    assert redis.hget(KEY, "limit") == redis.hget("forebay:version", "by")
    await client.aclose()


async def test_what_was_typed_meanwhile_is_not_overwritten(redis: Redis) -> None:
    client = connect(url_of(redis))
    seen = await reader.read(client, [KEY])
    redis.hset(KEY, "queue_limit", "5")
    with pytest.raises(Moved):
        await versions.commit(client, seen, [Change(KEY, "limit", None, "1")], Stamp("ann"))
    assert redis.hgetall(KEY) == {"queue_limit": "5"}
    await client.aclose()


async def test_the_history_is_bounded(redis: Redis) -> None:
    client = connect(url_of(redis))
    for number in range(versions.KEPT + 300):
        redis.xadd("forebay:history", {"version": number})
    await versions.commit(client, {}, [Change(KEY, "limit", None, "1")], Stamp("ann"))
    assert redis.xlen("forebay:history") < versions.KEPT + 200
    await client.aclose()
