"""The connection to Redis that everything but change tracking uses, and which server it goes to.

Several URLs may be given: the first that answers and is a primary is used, so that a fail-over
needs no more than that one of the others becomes the primary. Nothing here is on a request's
path; every call has a time limit, and whoever gets an error calls `lost` and tries again later.
"""

from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

NAME = "forebay"
REPLY_TIMEOUT = 1.0
LOST = (RedisError, OSError)
"""What any call to Redis may raise when it is gone, too slow, or not what it should be."""


class BrokenKey(RedisError):
    """One of the keys that Forebay itself writes holds what it cannot read: `DEL` repairs it."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}: DEL {key}")
        self.key = key
        self.reason = f"{why}: DEL {key}"


class NoPrimary(RedisConnectionError):
    """None of the servers answers as a primary."""


class Store:
    """Finds the primary among the URLs of one setting, and keeps to it until it is lost."""

    def __init__(self, urls: str) -> None:
        self._urls = urls.split(",")
        self._primary: Redis | None = None
        self.url = self._urls[0]
        """Where the primary is, or was last."""

    async def redis(self) -> Redis:
        """The primary's client. Raises one of LOST when there is none."""
        if self._primary is None:
            self._primary = await self._find()
        return self._primary

    async def lost(self) -> None:
        """An answer did not come, or was not a primary's: look again."""
        if self._primary is not None:
            primary, self._primary = self._primary, None
            await primary.aclose()

    async def _find(self) -> Redis:
        failures = []
        for url in self._urls:
            redis = connect(url)
            try:
                role = (await redis.role())[0]
            except LOST as error:
                failures.append(f"{_bare(url)}: {error}")
            else:
                if role == "master":
                    self.url = url
                    with suppress(ResponseError):  # a name is a courtesy, not a need
                        await redis.client_setname(NAME)
                    return redis
                failures.append(f"{_bare(url)}: is a {role}")
            await redis.aclose()
        raise NoPrimary("; ".join(failures))


def connect(url: str, **options: Any) -> Redis:
    """A client that gives up on a reply after REPLY_TIMEOUT and never tries twice by itself."""
    settings: dict[str, Any] = {
        "protocol": 2,
        "decode_responses": True,
        "encoding_errors": "surrogateescape",  # bytes that are not UTF-8 stay what they are
        "socket_timeout": REPLY_TIMEOUT,
        "socket_connect_timeout": REPLY_TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
    }
    return Redis.from_url(url, **settings | options)


def printable(text: str) -> str:
    """What came from Redis as it may be shown: bytes that are not UTF-8 are replaced."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _bare(url: str) -> str:
    """The URL without the password that may be in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
