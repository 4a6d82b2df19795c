"""Which headers of a client its engine gets to see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gateway.tenancy.keys import new_key
from tests.integration.parts import MODEL, running_engine, running_gateway

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
SENT = {
    "authorization": "Bearer sk-engine",
    "tracestate": "a=b",
    "x-session-id": "talk-1",
    "x-request-id": "mine",
    "cookie": "a=b",
    "origin": "https://page.example",
    "x-vllm-priority": "-9",
    "x-data-parallel-rank": "1",
}


@asynccontextmanager
async def listening_in(url: str) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """A server between gateway and engine that notes the headers of each chat of a client's."""
    heard: list[dict[str, str]] = []

    async def pass_on(request: web.Request) -> web.StreamResponse:
        if "x-request-id" in request.headers:
            heard.append({name.lower(): value for name, value in request.headers.items()})
        body, kind = await request.read(), {"content-type": request.content_type}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url + request.path, data=body, headers=kind) as answer,
        ):
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", pass_on)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", heard
    finally:
        await runner.cleanup()


async def seen(cache_dir: Path, sent: dict[str, str], **settings: Any) -> dict[str, str]:
    """What of the headers sent the engine sees."""
    async with (
        running_engine() as engine,
        listening_in(engine.url) as (url, heard),
        running_gateway(cache_dir, backends={"only": {"url": url}}, **settings) as gateway,
        aiohttp.ClientSession() as session,
    ):
        address = f"{gateway.url}/v1/chat/completions"
        async with session.post(address, json=BODY, headers=sent) as answer:
            assert answer.status == 200
    (headers,) = [one for one in heard if one["x-request-id"] == "mine"]
    return {name: headers[name] for name in SENT if name in headers}


async def test_the_engine_sees_who_asks_and_in_which_conversation(cache_dir: Path) -> None:
    names = ("authorization", "tracestate", "x-session-id", "x-request-id")
    assert await seen(cache_dir, SENT) == {name: SENT[name] for name in names}


async def test_a_key_of_the_gateways_own_stays_there(cache_dir: Path) -> None:
    key = new_key()
    sent = SENT | {"authorization": f"Bearer {key.secret}"}
    found = await seen(
        cache_dir,
        sent,
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {}},
    )
    assert "authorization" not in found
    assert found["x-session-id"] == "talk-1"
