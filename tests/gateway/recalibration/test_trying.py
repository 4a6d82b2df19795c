"""A change on trial, on a real Redis: kept, or taken back, whatever happens meanwhile."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from redis import Redis

from gateway.commands.trying import Site, try_change
from gateway.control import published, versions
from gateway.control.store import connect
from gateway.control.versions import Entry
from gateway.recalibration.proposal import Change
from tests.gateway.control.parts import config
from tests.gateway.report import days
from tests.redis_server import url_of

pytestmark = pytest.mark.slow

KEY = "forebay:class:short"
CHANGE = Change("class:short", "max_prompt_tokens", 1024, 1440, "it is better")
COUNT = 300


def requests(ttft: float) -> bytes:
    """So many requests that end now, all of one size."""
    one = orjson.loads(days.line(ttft, prompt_tokens=1200)) | {"time": time.time() - 0.01}
    return (orjson.dumps(one) + b"\n") * COUNT


@pytest.fixture
def site(redis: Redis, tmp_path: Path) -> Site:
    """A gateway's file settings in Redis, and a log of the time before."""

    async def publish() -> None:
        client = connect(url_of(redis))
        await published.publish(client, config())
        await client.aclose()

    asyncio.run(publish())
    log = tmp_path / "requests.jsonl"
    log.write_bytes(requests(0.2))
    return Site(url_of(redis), "cron", (log,))


def history(redis: Redis) -> list[Entry]:
    async def work() -> list[Entry]:
        client = connect(url_of(redis))
        try:
            return await versions.history(client)
        finally:
            await client.aclose()

    return asyncio.run(work())


@contextmanager
def meanwhile(redis: Redis, act: Callable[[], object]) -> Iterator[None]:
    """Once the change is in Redis, another does this."""

    def work() -> None:
        deadline = time.monotonic() + 10
        while redis.hget(KEY, CHANGE.field) != "1440":
            assert time.monotonic() < deadline
        act()

    other = threading.Thread(target=work)
    other.start()
    try:
        yield
    finally:
        other.join(10)


def append(site: Site, lines: bytes) -> None:
    with site.logs[0].open("ab") as file:
        file.write(lines)


def test_a_change_that_is_not_worse_is_kept(redis: Redis, site: Site) -> None:
    with meanwhile(redis, lambda: append(site, requests(0.2))):
        try_change(CHANGE, site, 2.0)
    assert redis.hgetall(KEY) == {"max_prompt_tokens": "1440"}
    assert [(e.by, e.note) for e in history(redis)] == [("cron", "recalibrated, on trial")]


def test_one_that_is_worse_is_taken_back_at_once(
    redis: Redis, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with meanwhile(redis, lambda: append(site, requests(0.4))), pytest.raises(SystemExit):
        try_change(CHANGE, site, 30.0)
    assert time.monotonic() - began < 20
    assert not redis.exists(KEY), "the file's value, as before"
    assert "prompts of 1025 to 1440" in history(redis)[0].note
    assert "taken back: TTFT" in capsys.readouterr().err


def test_one_that_nobody_used_is_taken_back(
    redis: Redis, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    redis.hset(KEY, CHANGE.field, "900")
    with pytest.raises(SystemExit):
        try_change(CHANGE, site, 0.4)
    assert redis.hgetall(KEY) == {"max_prompt_tokens": "900"}
    assert "only 0 requests after the change" in capsys.readouterr().err


def test_without_anything_to_compare_with_nothing_is_tried(
    redis: Redis, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.logs[0].write_bytes(days.line(0.2))
    with pytest.raises(SystemExit):
        try_change(CHANGE, site, 30.0)
    assert not redis.exists(KEY)
    assert "not tried: only 0 requests before" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_whose_trial_is_stopped_is_taken_back(
    redis: Redis, site: Site, number: signal.Signals
) -> None:
    main = threading.main_thread().ident
    assert main is not None
    with meanwhile(redis, lambda: signal.pthread_kill(main, number)), pytest.raises(SystemExit):
        try_change(CHANGE, site, 30.0)
    assert not redis.exists(KEY)
    assert "stopped before the end" in history(redis)[0].note


def test_what_others_set_meanwhile_is_theirs(
    redis: Redis, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def others() -> None:
        redis.hset(KEY, mapping={"max_prompt_tokens": "700", "limit": "9"})
        append(site, requests(0.4))

    with meanwhile(redis, others), pytest.raises(SystemExit):
        try_change(CHANGE, site, 30.0)
    assert redis.hgetall(KEY) == {"max_prompt_tokens": "700", "limit": "9"}
    assert "is '700' by now: left as it is" in capsys.readouterr().err


def test_other_fields_that_others_set_stay(redis: Redis, site: Site) -> None:
    def others() -> None:
        redis.hset(KEY, "limit", "9")
        append(site, requests(0.4))

    with meanwhile(redis, others), pytest.raises(SystemExit):
        try_change(CHANGE, site, 30.0)
    assert redis.hgetall(KEY) == {"limit": "9"}
