"""Backends that register in a real Redis are found for as long as they renew their key."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis

from backends.discovery.registry import PREFIX, Registration, RegistrySettings, RegistrySource
from backends.discovery.source import Template
from backends.types import BackendSpec
from bench.demo import free_port
from tests.backends.discovery.answers import following
from tests.backends.scripted import start, until
from tests.redis_server import redis_server, url_of

TEMPLATE = Template("registered", classes=frozenset(("long",)), limit=5, api_key="k")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with redis_server(tmp_path) as client:
        yield client


def settings(url: str, ttl: float = 0.3) -> RegistrySettings:
    return RegistrySettings(url, ttl=ttl, interval=0.02)


def register(redis: Redis, name: str, **fields: object) -> None:
    redis.set(PREFIX + name, json.dumps(fields))


async def test_keys_are_backends_and_their_fields_go_before_the_template_s(redis: Redis) -> None:
    register(redis, "a", url="http://10.0.0.1:8000/")
    register(redis, "b", url="http://10.0.0.2:8000", classes=["short"], limit=9, weight=2)
    async with following(RegistrySource(TEMPLATE, settings(url_of(redis)))) as answers:
        await answers.until("a", "b")
        a, b = answers.specs[-1]
        assert a == BackendSpec("a", "http://10.0.0.1:8000", frozenset(("long",)), 5, 1.0, "k")
        assert b == BackendSpec("b", "http://10.0.0.2:8000", frozenset(("short",)), 9, 2.0, "k")
        redis.delete(PREFIX + "a")
        await answers.until("b")


async def test_what_is_no_registration_is_left_out_and_said_once(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis.set(PREFIX + "text", "http://10.0.0.1")
    redis.set(PREFIX + "list", "[]")
    register(redis, "odd", url=7)
    register(redis, "good", url="http://h:1", classes=[7], limit=0, weight=-1)
    async with following(RegistrySource(TEMPLATE, settings(url_of(redis)))) as answers:
        await answers.until("good")
        assert answers.specs[-1][0].limit == 5
        redis.set(PREFIX + "more", "{}")
        await until(lambda: "more" in caplog.text)
    said = [record.message for record in caplog.records]
    assert sum("registered:text" in line for line in said) == 1
    assert len(said) == 4


async def test_a_registration_is_kept_while_it_is_held(redis: Redis) -> None:
    spec = BackendSpec("a", "http://10.0.0.1:8000", frozenset(("short",)), 3, 0.5)
    kept = settings(url_of(redis), ttl=0.6)
    async with following(RegistrySource(TEMPLATE, kept)) as answers:
        holding = start(Registration(spec, kept).hold())
        await answers.until("a")
        assert answers.specs[-1][0].limit == 3
        found = len(answers.specs)
        await asyncio.sleep(1.0)  # longer than one renewal lasts
        assert len(answers.specs) == found
        holding.cancel()
        await answers.until()


async def test_once_a_registration_is_told_it_can_be_found_and_without_redis_nobody_waits(
    redis: Redis,
) -> None:
    for url, found in ((url_of(redis), 1), (f"redis://127.0.0.1:{free_port()}", 0)):
        registration = Registration(BackendSpec("told", "http://h:1"), settings(url, ttl=5.0))
        holding = start(registration.hold())
        async with asyncio.timeout(20):
            await registration.told()
        assert redis.exists(PREFIX + "told") == found
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
    assert not redis.exists(PREFIX + "told")


async def test_who_renews_no_more_is_gone_after_the_ttl(redis: Redis) -> None:
    redis.set(PREFIX + "a", json.dumps({"url": "http://h:1"}), px=200)
    async with following(RegistrySource(TEMPLATE, settings(url_of(redis)))) as answers:
        await answers.until("a")
        await answers.until()


async def test_a_redis_that_is_lost_and_comes_back_empty_loses_nobody_who_renews(
    tmp_path: Path,
) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    spec = BackendSpec("stays", "http://10.0.0.1:8000")
    source = RegistrySource(TEMPLATE, settings(url, ttl=0.9))
    holding = start(Registration(spec, settings(url, ttl=0.9)).hold())
    async with following(source) as answers:
        with redis_server(tmp_path, port) as redis:
            register(redis, "leaves", url="http://10.0.0.2:8000")
            await answers.until("leaves", "stays")
        with redis_server(tmp_path, port):
            await answers.until("stays")
            seen = [sorted(spec.name for spec in specs) for specs in answers.specs]
            first = seen.index(["leaves", "stays"])
            assert seen[first:] == [["leaves", "stays"], ["stays"]]
            holding.cancel()
            with suppress(asyncio.CancelledError):
                await holding


async def test_without_redis_nothing_is_found_and_nothing_breaks() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    holding = start(Registration(BackendSpec("a", "http://h:1"), settings(url)).hold())
    async with following(RegistrySource(TEMPLATE, settings(url))) as answers:
        await asyncio.sleep(0.3)
        assert answers.specs == []
    holding.cancel()
    with suppress(asyncio.CancelledError):
        await holding
    assert holding.cancelled()
