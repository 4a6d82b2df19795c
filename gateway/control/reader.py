"""Reads the operators' keys, in few round trips however many there are. Decides nothing."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.control.keys import PREFIX, typed
from gateway.control.store import NAME

BATCH = 500
WRITES = ("hset", "hdel", "hmset", "del", "unlink", "exec", "rename", "restore", "hincrby")


async def scan(redis: Redis) -> frozenset[str]:
    """The names of all keys under our prefix that people write."""
    names = redis.scan_iter(match=f"{PREFIX}*", count=2 * BATCH)
    return frozenset([name async for name in names if typed(name)])


async def read(redis: Redis, keys: Iterable[str]) -> dict[str, Mapping[str, str] | None]:
    """What each key holds: a hash, {} when it does not exist, None when it is something else."""
    found: dict[str, Mapping[str, str] | None] = {}
    names = iter(sorted(keys))
    while batch := list(islice(names, BATCH)):
        async with redis.pipeline(transaction=False) as pipe:
            for key in batch:
                pipe.hgetall(key)
            answers = await pipe.execute(raise_on_error=False)
        found.update(zip(batch, map(_fields, answers), strict=True))
    return found


async def who_wrote(redis: Redis) -> str:
    """The one client whose last command could have changed a key just now, by name and address.

    Redis does not say who changed a key. A `redis-cli HSET …` that has ended leaves no trace: "?".
    """
    try:
        clients: list[dict[str, Any]] = await redis.client_list()
    except ResponseError:  # access rules may forbid it
        return "?"
    recent = [
        client
        for client in clients
        if client.get("cmd", "").partition("|")[0] in WRITES
        and int(client.get("idle", 99)) <= 1
        and client.get("name") != NAME
    ]
    if len(recent) != 1:
        return "?"
    return f"{recent[0].get('name') or 'redis-cli'} {recent[0].get('addr', '')}".strip()


def _fields(answer: Any) -> Mapping[str, str] | None:
    """One reply to HGETALL. A wrong type at the key is the operator's error, not Redis's."""
    if isinstance(answer, ResponseError):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]
