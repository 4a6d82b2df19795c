"""Operators' keys: on a real Redis server, with what people really type."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from bench.demo import free_port
from gateway.config import Config
from gateway.control import REJECTED_KEY, Control, Rejection, overlay
from gateway.tasks import Tasks
from tests.redis_server import redis_server, url_of


def config(redis: str | None = None) -> Config:
    backends = {"short-0": {"url": "http://h:1", "classes": ["short"]}}
    return Config.model_validate({"backends": backends, "redis": redis})


def test_a_key_overrides_only_the_fields_it_has() -> None:
    effective = overlay(
        config(),
        {
            "forebay:class:short": {"max_prompt_tokens": "512", "limit": "8"},
            "forebay:backend:short-0": {"weight": "0", "classes": "short, long"},
            "forebay:burst": {"prompt_tokens": "4096"},
        },
    )
    assert effective.classes["short"].max_prompt_tokens == 512
    assert effective.classes["short"].limit == 8
    assert effective.classes["short"].queue_limit == config().classes["short"].queue_limit
    assert effective.backends["short-0"].weight == 0
    assert effective.backends["short-0"].classes == ("short", "long")
    assert effective.burst.prompt_tokens == 4096


def test_none_takes_a_bound_away() -> None:
    bounded = overlay(config(), {"forebay:class:short": {"limit": "8"}})
    assert (
        overlay(bounded, {"forebay:class:short": {"limit": "none"}}).classes["short"].limit is None
    )


@pytest.mark.parametrize(
    ("key", "fields", "words"),
    [
        ("forebay:class:short", {"limit": "many"}, "limit: Input should be a valid integer"),
        ("forebay:class:short", {"limt": "5"}, "limt: Extra inputs are not permitted"),
        ("forebay:class:short", {"max_prompt_tokens": "-1"}, "max_prompt_tokens: .* greater"),
        ("forebay:backend:short-0", {"weight": "nan"}, "weight: .*"),
        ("forebay:backend:short-0", {"url": "http://other:1"}, "cannot be changed while running"),
        ("forebay:backend:short-0", {"classes": "shrt"}, "do not exist"),
        ("forebay:burst", {"window": "soon"}, "window: .* valid number"),
        ("forebay:class:short", None, "not a hash"),
    ],
)
def test_what_is_wrong_is_named(key: str, fields: dict[str, str] | None, words: str) -> None:
    with pytest.raises(Rejection, match=words):
        overlay(config(), {key: fields})


def test_classes_must_still_cover_every_prompt() -> None:
    with pytest.raises(Rejection, match="exactly one class"):
        overlay(config(), {"forebay:class:short": {"max_prompt_tokens": "none"}})


class Following:
    """A Control that follows a real server, and what it told."""

    def __init__(self, redis: str) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.control = Control(config(redis), self.told.put_nowait, self.told.put_nowait)
        self.tasks = Tasks()

    async def __aenter__(self) -> "Following":
        self.tasks.spawn("control", self.control.follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.stop()
        assert self.tasks.failed == 0

    async def next(self) -> Any:
        return await asyncio.wait_for(self.told.get(), 10)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with redis_server(tmp_path) as client:
        yield client


async def test_a_change_is_in_force_within_a_second(redis: Redis) -> None:
    loop = asyncio.get_running_loop()
    async with Following(url_of(redis)) as following:
        redis.hset("forebay:backend:short-0", "weight", "0")
        await following.next()
        redis.hset("forebay:backend:short-0", "weight", "0.5")
        began = loop.time()
        accepted = await following.next()
        assert accepted.backends["short-0"].weight == 0.5
        assert loop.time() - began < 1.0
        redis.delete("forebay:backend:short-0")
        assert (await following.next()).backends["short-0"].weight == 1.0
        assert following.control.version == 3


async def test_an_invalid_change_is_reported_and_changes_nothing(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        redis.hset("forebay:class:short", mapping={"limit": "9", "queue_limit": "lots"})
        reasons = await following.next()
        assert "queue_limit" in reasons["forebay:class:short"]
        assert redis.hgetall(REJECTED_KEY) == reasons == following.control.reasons
        assert following.control.version == 0
        redis.hset("forebay:class:short", "queue_limit", "7")
        assert await following.next() == {}
        assert (await following.next()).classes["short"].limit == 9
        assert not redis.exists(REJECTED_KEY)


async def test_a_key_of_the_wrong_type_is_reported_once(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        redis.set("forebay:burst", "a string")
        assert "not a hash" in (await following.next())["forebay:burst"]
        redis.hset("forebay:class:short", "limit", "3")
        assert "not a hash" in (await following.next())["forebay:burst"]
        assert following.told.empty()


async def test_a_lost_redis_leaves_the_settings_and_is_followed_again(tmp_path: Path) -> None:
    port = free_port()
    async with Following(f"redis://127.0.0.1:{port}") as following:
        assert following.control.up is False
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "5")
            assert (await following.next()).classes["short"].limit == 5
            assert following.control.up is True
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "6")
            accepted = await following.next()
            if accepted.classes["short"].limit is None:  # it was read before the HSET
                accepted = await following.next()
            assert accepted.classes["short"].limit == 6


async def test_without_redis_there_is_nothing_to_follow() -> None:
    control = Control(config(), pytest.fail, pytest.fail)
    await control.follow()
    assert control.up is None
