"""The admin listener over real sockets: its files, its headers, its events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from gateway.app import App
from gateway.config import Config
from gateway.ui.broadcast import MOST, UNREAD, Broadcast, TooManyPages
from gateway.ui.listener import STATIC, AdminTaken
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Gateway
from tests.redis_server import redis_server, url_of

ADMIN = {"port": 0}
NOBODY = {"b": {"url": "http://127.0.0.1:1"}}
"""A backend that is not there."""


class Events:
    """Reads server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, *names: str) -> tuple[str, Any]:
        """The next event, or the next of these names."""
        async with asyncio.timeout(15):
            while True:
                block = await self._response.content.readuntil(b"\n\n")
                if not block:
                    raise EOFError
                lines = dict(line.split(": ", 1) for line in block.decode().strip().splitlines())
                if "event" in lines and (not names or lines["event"] in names):
                    return lines["event"], orjson.loads(lines["data"])


def admin_url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.app.brain.admin.port}"


@asynccontextmanager
async def events_of(gateway: Gateway) -> AsyncIterator[Events]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{admin_url(gateway)}/ui/events") as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        yield Events(response)


async def test_every_file_is_served_and_guarded(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(backends=NOBODY, admin=ADMIN, wait=False)
    async with aiohttp.ClientSession() as session:
        for path in ("/", "/ui", *(f"/ui/{name}" for name in STATIC)):
            async with session.get(admin_url(gateway) + path) as answer:
                assert answer.status == 200, path
                assert "default-src 'self'" in answer.headers["content-security-policy"]
                text = await answer.text()
                assert "http://" not in text.replace("http://www.w3.org", ""), "nothing from afar"
                assert "https://" not in text
        async with session.post(f"{admin_url(gateway)}/ui") as answer:
            assert answer.status == 405


async def test_without_a_port_there_is_no_listener(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(backends=NOBODY, wait=False)
    assert gateway.app.brain.admin.port is None


async def test_a_taken_port_is_told_with_its_setting(
    start_gateway: StartGateway, cache_dir: Path
) -> None:
    first = await start_gateway(backends=NOBODY, admin=ADMIN, wait=False)
    taken = {"port": first.app.brain.admin.port}
    config = {"backends": NOBODY, "admin": taken, "port": 0}
    app = App(Config.model_validate(config | {"tokenizer": {"cache_dir": cache_dir}}))
    try:
        with pytest.raises(AdminTaken, match=r"admin\.port"):
            await app.start()
    finally:
        await app.stop()


async def test_a_page_gets_everything_then_each_second_and_each_event(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"a": {"url": engine.url}}, admin=ADMIN)
    async with events_of(gateway) as events:
        name, hello = await events.next()
        assert name == "hello"
        assert hello["now"]["ready"]
        assert [backend["name"] for backend in hello["now"]["backends"]] == ["a"]
        assert [item["subject"] for item in hello["news"]] == ["a"] * len(hello["news"])
        assert hello["settings"]["effective"]["burst.prompt_tokens"] == 2048
        async with gateway.client() as client:
            stream = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            async for _ in stream:
                pass
        while True:
            _, second = await events.next("second")
            short = next(c for c in second["classes"] if c["name"] == "short")
            if short["streams"]:
                break
        assert {stage["name"] for stage in short["stages"]} >= {"read", "tokenize", "queue"}
        assert short["mean"] == pytest.approx(sum(s["seconds"] for s in short["stages"]), rel=0.01)
        engine.kill()
        async with gateway.client() as client:
            with pytest.raises(openai.InternalServerError):
                await client.completions.create(model=MODEL, prompt="Hi")
        _, item = await events.next("news")
        assert (item["kind"], item["subject"], item["text"][:5]) == ("backend", "a", "down:")
        _, now = await events.next("now")
        assert now["backends"][0]["state"] == "down"
        assert not now["ready"]


async def test_settings_come_with_their_history_and_refusals(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    with redis_server(tmp_path) as redis:
        gateway = await start_gateway(
            backends=NOBODY,
            admin=ADMIN,
            redis=url_of(redis),
            wait=False,
        )
        await gateway.until(lambda: gateway.app.control.up is True)
        async with events_of(gateway) as events:
            redis.hset("forebay:burst", "prompt_tokens", "4096")
            while True:
                _, settings = await events.next("settings")
                if settings["history"]:
                    break
            assert settings["effective"]["burst.prompt_tokens"] == 4096
            assert settings["history"][0]["changes"] == [
                ["forebay:burst", "prompt_tokens", None, "4096"]
            ]
            redis.hset("forebay:burst", "window", "soon")
            while True:
                _, settings = await events.next("settings")
                if settings["rejected"]:
                    break
            assert "forebay:burst" in settings["rejected"]
            assert settings["effective"]["burst.window"] == 1.0


async def test_a_stop_ends_open_pages(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(backends=NOBODY, admin=ADMIN, wait=False)
    async with events_of(gateway) as events:
        await events.next("hello")
        await gateway.app.brain.admin.stop()
        with pytest.raises(EOFError):
            await events.next("never")


async def test_pages_are_bounded_and_one_that_does_not_read_is_ended() -> None:
    broadcast = Broadcast()
    pages = [broadcast.open() for _ in range(MOST)]
    with pytest.raises(TooManyPages):
        broadcast.open()
    broadcast.leave(pages.pop())
    sleepy, *_ = pages
    for number in range(UNREAD + 1):
        for page in pages[1:]:
            if number:
                await page.next()
        broadcast.send("second", number)
    assert len(broadcast) == MOST - 2
    read = [await sleepy.next() for _ in range(UNREAD + 1)]
    assert read[-1] is None
    assert read[0] == b"event: second\ndata: 0\n\n"
    broadcast.close()
    with pytest.raises(TooManyPages):
        broadcast.open()
