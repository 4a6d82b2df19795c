"""Operators' settings from Redis: hashes that a person can type, in force within a second.

    forebay:class:<class>       fields of ClassConfig
    forebay:backend:<backend>   limit, weight, classes of BackendConfig
    forebay:burst               fields of BurstConfig

Every key is read together and laid over the file configuration; the result must pass the same
schema as the file, as a whole, or nothing changes and the reasons stand at `forebay:rejected`.
The keys are polled: their names are known, so one round trip reads them all, on any Redis.
Nothing here is on a request's path, and without Redis the last good settings stay in force.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.config import Config

log = logging.getLogger("forebay.control")

POLL_INTERVAL = 0.25
RETRY_INTERVAL = 1.0
REPLY_TIMEOUT = 2.0
REJECTED_KEY = "forebay:rejected"
BACKEND_FIELDS = frozenset(("limit", "weight", "classes"))

Hashes = Mapping[str, Mapping[str, str] | None]
"""What Redis holds at each key; None: something that is not a hash."""


class Rejection(ValueError):
    """The keys do not make valid settings. `reasons` maps a key to what is wrong with it."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {why}" for key, why in reasons.items()))
        self.reasons = reasons


def keys_of(config: Config) -> dict[str, tuple[str, ...]]:
    """The Redis keys that are read, and where in the configuration each one's fields go."""
    keys: dict[str, tuple[str, ...]] = {"forebay:burst": ("burst",)}
    keys.update((f"forebay:class:{name}", ("classes", name)) for name in config.classes)
    keys.update((f"forebay:backend:{name}", ("backends", name)) for name in config.backends)
    return keys


def overlay(config: Config, hashes: Hashes) -> Config:
    """The file configuration with the keys' fields over it. Raises Rejection."""
    document: dict[str, Any] = config.model_dump()
    reasons: dict[str, str] = {}
    for key, path in keys_of(config).items():
        section = document
        for step in path:
            section = section[step]
        fields = hashes.get(key, {})
        if fields is None:
            reasons[key] = "not a hash: DEL it, then use HSET"
            continue
        for field, text in fields.items():
            if path[0] == "backends" and field not in BACKEND_FIELDS:
                known = ", ".join(sorted(BACKEND_FIELDS))
                reasons[key] = f"{field}: cannot be changed while running; fields: {known}"
            section[field] = _plain(field, text)
    if reasons:
        raise Rejection(reasons)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise Rejection(_reasons(error)) from error


def _plain(field: str, text: str) -> Any:
    """What a person types: numbers as they are, lists with commas, `none` for no bound."""
    if field == "classes":
        return tuple(part for part in text.replace(" ", "").split(",") if part)
    return None if text.strip().lower() == "none" else text


def _fields(answer: Any) -> Mapping[str, str] | None:
    """One reply to HGETALL. A wrong type at the key is the operator's error, not Redis's."""
    if isinstance(answer, ResponseError):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]


def _reasons(error: ValidationError) -> dict[str, str]:
    prefixes = {"classes": "forebay:class:", "backends": "forebay:backend:"}
    reasons: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        place = [str(step) for step in problem["loc"]]
        key = "forebay:burst" if place[:1] == ["burst"] else "forebay"
        if len(place) > 1 and place[0] in prefixes:
            key = prefixes[place[0]] + place[1]
        field = place[-1] if len(place) > 1 else "settings"
        reasons[key] = f"{field}: {problem['msg']}"
    return reasons


class Control:
    """Follows the keys of one Redis.

    `accepted` gets each new effective configuration, `rejected` each refusal's reasons (empty
    when the keys are valid again).
    """

    def __init__(
        self,
        config: Config,
        accepted: Callable[[Config], None],
        rejected: Callable[[dict[str, str]], None],
    ) -> None:
        self._config = config
        self._keys = list(keys_of(config))
        self._accepted = accepted
        self._rejected = rejected
        self._seen: Hashes = {}
        self._current = config
        self.up: bool | None = None if config.redis is None else False
        self.reasons: dict[str, str] = {}
        self.version = 0

    async def follow(self) -> None:
        """Read the keys until cancelled; a lost Redis is tried again for ever."""
        url = self._config.redis
        if url is None:
            return
        async with Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=REPLY_TIMEOUT,
            socket_connect_timeout=REPLY_TIMEOUT,
        ) as redis:
            while True:
                try:
                    await self._read(redis)
                except (RedisError, OSError, UnicodeDecodeError) as error:
                    self._set_up(up=False, why=str(error))
                    await asyncio.sleep(RETRY_INTERVAL)
                else:
                    self._set_up(up=True, why="")
                    await asyncio.sleep(POLL_INTERVAL)

    async def _read(self, redis: "Redis") -> None:
        async with redis.pipeline(transaction=False) as pipe:
            for key in self._keys:
                pipe.hgetall(key)
            answers = await pipe.execute(raise_on_error=False)
        hashes = dict(zip(self._keys, map(_fields, answers), strict=True))
        if hashes == self._seen:
            return
        self._seen = hashes
        try:
            effective = overlay(self._config, hashes)
        except Rejection as error:
            await self._refuse(redis, error)
        else:
            await self._accept(redis, effective)

    async def _accept(self, redis: "Redis", effective: Config) -> None:
        if self.reasons:
            self.reasons = {}
            self._rejected({})
            await redis.delete(REJECTED_KEY)
        if effective != self._current:
            self._current = effective
            self.version += 1
            self._accepted(effective)

    async def _refuse(self, redis: "Redis", error: Rejection) -> None:
        log.warning("settings refused, the last good ones stay in force: %s", error)
        self.reasons = error.reasons
        self._rejected(error.reasons)
        async with redis.pipeline(transaction=True) as pipe:
            pipe.delete(REJECTED_KEY)
            for key, why in error.reasons.items():
                pipe.hset(REJECTED_KEY, key, why)
            await pipe.execute()

    def _set_up(self, *, up: bool, why: str) -> None:
        if up and not self.up:
            log.info("redis answers; following %d keys", len(self._keys))
        elif not up and self.up is not False:
            log.warning("redis is lost, the last good settings stay in force: %s", why)
        self.up = up
