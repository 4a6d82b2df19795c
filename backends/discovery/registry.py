"""Backends that register themselves in Redis: one key each, which they must keep renewing.

    forebay:registered:<name>   {"url": "http://10.0.0.7:8000", "classes": ["short"], "limit": 64}

written with a time to live, `SET … EX 15`, and again before it is over. A key that ran out is a
backend that is gone. Lives here: both sides, `RegistrySource` and `Registration`. A Redis that is
lost says nothing about the backends.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from backends.discovery.source import Backoff, Found, Template
from backends.types import BackendSpec

log = logging.getLogger("forebay.discovery")

PREFIX = "forebay:registered:"


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """`ttl` is how long a registration holds; the keys are read every `interval`.

    A Redis that was lost may have come back empty. Until registrations had `ttl` to be renewed,
    those that are missing count as still there.
    """

    url: str
    ttl: float = 15.0
    interval: float = 1.0
    reply_within: float = 2.0

    def connect(self) -> "Redis":
        return Redis.from_url(
            self.url,
            decode_responses=True,
            socket_timeout=self.reply_within,
            socket_connect_timeout=self.reply_within,
        )


class RegistrySource:
    """Follows the keys of one Redis. The keys' own fields go before the template's."""

    def __init__(self, template: Template, settings: RegistrySettings) -> None:
        self._name = template.name
        self._template = template
        self._settings = settings
        self._backoff = Backoff()
        self._known: dict[str, BackendSpec] | None = None
        self._trust_absence_at = 0.0
        self._complained: dict[str, str] = {}

    async def follow(self, found: Found) -> None:
        async with self._settings.connect() as redis:
            while True:
                try:
                    documents = await self._read(redis)
                except (RedisError, OSError, UnicodeDecodeError) as error:
                    log.warning(
                        "discovery %s keeps its last answer: %s", self._template.name, error
                    )
                    self._trust_absence_at = monotonic() + self._settings.ttl
                    await asyncio.sleep(self._backoff.next())
                else:
                    self._backoff.reset()
                    self._take(documents, found)
                    await asyncio.sleep(self._settings.interval)

    async def _read(self, redis: "Redis") -> dict[str, str]:
        keys = [str(key) async for key in redis.scan_iter(match=f"{PREFIX}*", count=1000)]
        values = await redis.mget(keys) if keys else []
        return {
            key.removeprefix(PREFIX): str(value)
            for key, value in zip(keys, values, strict=True)
            if value is not None  # it ran out meanwhile
        }

    def _take(self, documents: Mapping[str, str], found: Found) -> None:
        specs: dict[str, BackendSpec] = {}
        complaints: dict[str, str] = {}
        for name, text in sorted(documents.items()):
            try:
                specs[name] = _spec(name, text, self._template)
            except ValueError as error:
                complaints[name] = str(error)
        for name in complaints.keys() - self._complained.keys():
            log.warning(
                "discovery %s: %s%s: %s", self._template.name, PREFIX, name, complaints[name]
            )
        self._complained = complaints
        if monotonic() < self._trust_absence_at:
            specs = {**(self._known or {}), **specs}
        if specs != self._known:
            self._known = specs
            found(list(specs.values()))


class Registration:
    """Keeps one backend registered for as long as `hold` runs, and takes it out at its end."""

    def __init__(self, spec: BackendSpec, settings: RegistrySettings) -> None:
        self._key = PREFIX + spec.name
        self._settings = settings
        self._told = asyncio.Event()
        self._document = orjson.dumps(
            {
                "url": spec.url,
                "classes": sorted(spec.classes),
                "limit": spec.limit,
                "weight": spec.weight,
            }
        )

    async def told(self) -> None:
        """Return when `hold` has written it, or could not."""
        await self._told.wait()

    async def hold(self) -> None:
        async with self._settings.connect() as redis:
            try:
                while True:
                    await self._renew(redis)
                    self._told.set()
                    await asyncio.sleep(self._settings.ttl / 3)
            finally:
                self._told.clear()
                await self._leave(redis)

    async def _renew(self, redis: "Redis") -> None:
        try:
            await redis.set(self._key, self._document, px=int(self._settings.ttl * 1000))
        except (RedisError, OSError) as error:
            log.warning("cannot register at %s, for now: %s", self._key, error)

    async def _leave(self, redis: "Redis") -> None:
        try:
            await redis.delete(self._key)
        except (RedisError, OSError) as error:
            log.warning("cannot take %s out; it runs out by itself: %s", self._key, error)


def _spec(name: str, text: str, template: Template) -> BackendSpec:
    """Raises ValueError that says what is wrong with a registration."""
    try:
        fields: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("url"), str):
        raise ValueError('not an object with a "url"')
    spec = BackendSpec(
        name,
        fields["url"].rstrip("/"),
        classes=template.classes,
        limit=template.limit,
        weight=template.weight,
        api_key=template.api_key,
    )
    classes = fields.get("classes")
    if isinstance(classes, list) and all(isinstance(item, str) for item in classes) and classes:
        spec = replace(spec, classes=frozenset(classes))
    if isinstance(limit := fields.get("limit"), int) and limit >= 1:
        spec = replace(spec, limit=limit)
    if isinstance(weight := fields.get("weight"), int | float) and weight >= 0:
        spec = replace(spec, weight=float(weight))
    return spec
