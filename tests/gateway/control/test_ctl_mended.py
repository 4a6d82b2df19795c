"""`forebay ctl` and `forebay keys` where something is wrong: a sentence, and what is stored."""

from typing import Any

import pytest
from pydantic import ValidationError
from redis import Redis
from typer import Typer

from gateway.commands.ctl import ctl
from gateway.commands.keys import keys
from tests.gateway.control.parts import config
from tests.gateway.control.test_ctl import Run, publish, run
from tests.redis_server import url_of

__all__ = ["run"]

RENAMED: dict[str, Any] = {
    "classes": {"short": {"max_prompt_tokens": 1024}, "big": {}},
    "backends": {"b": {"url": "http://h:1"}, "c": {"url": "http://h:2"}},
}
"""The file after somebody has renamed its class `long`."""


@pytest.mark.parametrize(
    ("app", "args", "shown"),
    [
        (keys, ("list",), "forebay:key:k\n    tenant = a    (stored in redis)"),
        (keys, ("create", "acme"), ""),
        (ctl, ("get",), "classes = long=1    (stored in redis)"),
        (ctl, ("get", "tenant:a"), "classes = long=1    (stored in redis)"),
        (ctl, ("explain", "class:short"), "ttft_target: what"),
        (ctl, ("canary", "status", "m"), "old = b    (stored in redis)"),
        (ctl, ("set", "burst", "window=2"), ""),
    ],
)
def test_what_does_not_fit_a_changed_file_is_shown_with_the_reason(
    run: Run, redis: Redis, app: Typer, args: tuple[str, ...], shown: str
) -> None:
    run(ctl, "set", "key:k", "tenant=a", "sha256=" + "0" * 64)
    publish(redis, config(backends=RENAMED["backends"]))
    run(ctl, "set", "canary:m", "old=b", "new=c")
    run(ctl, "set", "tenant:a", "classes=long=1")
    publish(redis, config(**RENAMED))
    result = run(app, *args, code=1)
    assert "tenant a names classes that do not exist: long; there are: big, short" in result.output
    assert shown in result.output
    assert "0" * 64 not in result.output
    run(ctl, "set", "tenant:a", "classes=")
    assert "tenant a" in run(keys, "list").output


@pytest.mark.parametrize(
    ("app", "args", "words"),
    [
        (ctl, ("get", "--redis", "foo"), "redis://HOST:PORT"),
        (ctl, ("get", "--redis", "redis://127.0.0.1:x"), "redis://HOST:PORT"),
        (ctl, ("set", "burst", "window=2", "--dry-run", "--gateway", "foo"), "http://HOST:PORT"),
        (ctl, ("drain", "long-0", "--gateway", "127.0.0.1:8080"), "http://HOST:PORT"),
        (ctl, ("drain", "long-0", "--gateway", "http://h:x"), "http://HOST:PORT"),
        (ctl, ("history", "--count", "0"), "greater than or equal to 1"),
        (keys, ("create", "acme", "--days", "1e9"), "at least a minute"),
        (keys, ("create", "acme", "--days", "nan"), "at least a minute"),
        (keys, ("create", "acme", "--days", "-1"), "at least a minute"),
        (keys, ("create", "acme", "--days", "0"), "at least a minute"),
    ],
)
def test_what_an_option_cannot_be_is_told_as_a_mistake_of_use(
    run: Run, redis: Redis, app: Typer, args: tuple[str, ...], words: str
) -> None:
    assert words in run(app, *args, code=2).output
    assert redis.keys("forebay:*") == []


def test_a_dry_run_asks_who_is_no_gateway(run: Run, redis: Redis) -> None:
    url = url_of(redis).replace("redis", "http")
    output = run(ctl, "set", "burst", "window=2", "--dry-run", "--gateway", url).output
    assert "no gateway answers" in output


def test_an_expired_key_is_listed_as_such(run: Run) -> None:
    hashed = "sha256=" + "0" * 64
    run(ctl, "set", "key:old", "tenant=a", hashed, "expires=2020-01-01T00:00:00Z")
    assert "EXPIRED 2020-01-01" in run(keys, "list").output


def test_a_key_that_does_not_exist_is_no_answer(run: Run) -> None:
    assert "did you mean short?" in run(ctl, "get", "class:shrt", code=1).output
    assert "did you mean class?" in run(ctl, "get", "clas:short", code=1).output


def test_keys_of_ours_of_the_wrong_type_are_named_and_nothing_is_changed(
    run: Run, redis: Redis
) -> None:
    redis.set("forebay:rejected", "x")
    run(ctl, "set", "burst", "window=3")
    redis.delete("forebay:history")
    redis.set("forebay:history", "x")
    told = run(ctl, "set", "burst", "window=4", code=1).output
    assert "forebay:history: is not a stream: DEL forebay:history" in told
    assert redis.hgetall("forebay:burst") == {"window": "3"}
    assert "DEL forebay:history" in run(ctl, "history", code=1).output
    redis.set("forebay.file", "{}")
    assert "restart the gateways" in run(ctl, "get", code=1).output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": {"a": {"max_prompt_tokens": 9, "spill": "a"}, "b": {}}}, "spills to itself"),
        ({"canaries": {"m": {"old": "short-0,short-0", "new": "short-1"}}}, "twice in old"),
        ({"canaries": {"m": {"old": "short-0", "new": "short-1,short-1"}}}, "twice in new"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(
            **{"backends": {n: {"url": f"http://{n}"} for n in ("short-0", "short-1")}} | changes
        )


def test_a_redis_that_no_client_would_take_is_refused() -> None:
    with pytest.raises(ValidationError, match="redis://HOST:PORT"):
        config("redis://127.0.0.1:6379,redis://127.0.0.1:x")
