"""How a gateway notices that keys have changed: told by Redis, or by asking often.

`Tracking` uses RESP3 client tracking in broadcast mode: Redis names each changed key under our
prefix as it changes. `Polling` is for servers, proxies and access rules without it. Neither reads
what the keys hold.
"""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Any, Protocol, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.control.keys import PREFIX, typed
from gateway.control.store import connect

Changes = frozenset[str] | None
"""The keys that may have changed; None: any may, also ones that nobody has heard of."""

GATHER = 0.005
"""Seconds in which further changes join the first: a script's HSETs are one change."""
PING_AFTER = 1.0
POLL_INTERVAL = 0.25
SCAN_INTERVAL = 0.5
SCAN_COST = 20
"""Scanning the whole keyspace may take one part in so many of the server's time."""


class Notice(Protocol):
    """Waits for the next change. Raises one of `store.LOST` when the server is gone. Now and then
    it comes back without any."""

    name: str

    async def changes(self, known: Iterable[str]) -> Changes: ...

    def scan_took(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Tracking:
    """Redis tells. One connection of its own, because answers and news share it."""

    name = "tracking"

    def __init__(self, redis: Redis, connection: Any) -> None:
        self._redis = redis
        self._connection = connection
        self._changed: set[str] = set()
        self._everything = False

    @classmethod
    async def begin(cls, url: str) -> Self:
        """Raises RedisError where tracking cannot be had."""
        redis = connect(url, protocol=3)
        connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
        tracking = cls(redis, connection)
        try:
            # redis-py's own client-side cache listens in this way; there is no public one.
            connection._parser.set_invalidation_push_handler(tracking._told)
            await connection.send_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", PREFIX)
            await connection.read_response()
        except BaseException:
            await tracking.close()
            raise
        return tracking

    async def changes(self, known: Iterable[str]) -> Changes:
        while not self._changed and not self._everything:
            before = monotonic()
            await self._connection.read_response(timeout=PING_AFTER, push_request=True)
            if monotonic() - before >= PING_AFTER:
                await self._connection.send_command("PING")
                await self._connection.read_response()
                break
        until = monotonic() + GATHER
        while (left := until - monotonic()) > 0:
            await self._connection.read_response(timeout=left, push_request=True)
        changed, everything = frozenset(self._changed), self._everything
        self._changed, self._everything = set(), False
        return None if everything else changed

    def scan_took(self, seconds: float) -> None:
        """Redis is asked for all keys only when everything may have changed."""

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)
        await self._redis.connection_pool.release(self._connection)
        await self._redis.aclose()

    async def _told(self, news: list[Any]) -> None:
        """A list of keys, or None when the whole database was emptied."""
        keys = news[1]
        if keys is None:
            self._everything = True
        else:
            self._changed.update(filter(typed, map(_text, keys)))


class Polling:
    """We ask: for the known keys four times a second, for new ones as often as a scan is cheap."""

    name = "polling"

    def __init__(self) -> None:
        self._scanned = monotonic()
        self._pause = SCAN_INTERVAL

    def scan_took(self, seconds: float) -> None:
        self._scanned = monotonic()
        self._pause = max(SCAN_INTERVAL, SCAN_COST * seconds)

    async def changes(self, known: Iterable[str]) -> Changes:
        await asyncio.sleep(POLL_INTERVAL)
        if monotonic() - self._scanned >= self._pause:
            return None
        return frozenset(known)

    async def close(self) -> None:
        """It has no connection of its own."""


async def begin(url: str) -> tuple[Tracking | Polling, str]:
    """The best way that this server allows, and why it is not tracking, if so."""
    try:
        return await Tracking.begin(url), ""
    except (RedisError, OSError) as error:
        return Polling(), str(error)


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="surrogateescape")
