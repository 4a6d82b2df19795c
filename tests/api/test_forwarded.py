"""Which headers of a client its engine gets to see."""

from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gateway.tenancy.keys import new_key
from tests.integration.parts import MODEL, running_engine, running_gateway
from tests.sites import listening_in

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


async def seen(cache_dir: Path, sent: dict[str, str], **settings: Any) -> dict[str, str]:
    """What of the headers sent the engine sees."""
    heard: list[dict[str, str]] = []

    def hear(request: web.Request) -> None:
        if "x-request-id" in request.headers:
            heard.append({name.lower(): value for name, value in request.headers.items()})

    async with (
        running_engine() as engine,
        listening_in(engine.url, hear) as url,
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
