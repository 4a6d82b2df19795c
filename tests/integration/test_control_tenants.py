"""Tenants at a real gateway: who may, how much, and what clients are told."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from gateway.tenancy.keys import new_key
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Gateway
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 2,
}
PATH = "/v1/chat/completions"


async def ask(
    gateway: Gateway, key: str | None, path: str = PATH, **fields: Any
) -> tuple[int, dict[str, str], Any]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + path, json=BODY | fields, headers=headers) as answer,
    ):
        named = {name.lower(): value for name, value in answer.headers.items()}
        body = {} if fields.get("stream") else await answer.json(content_type=None)
        await answer.read()
        return answer.status, named, body


async def test_keys_are_asked_for_and_stay_here(
    start_engine: StartEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    engine, key = await start_engine(), new_key()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {}},
        request_log=str(tmp_path / "log"),
    )
    for wrong in (None, "sk-wrong", key.secret + "x"):
        status, headers, body = await ask(gateway, wrong)
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert headers["www-authenticate"] == "Bearer"
    assert await gateway.metric("forebay_rejects_total", code="invalid_api_key") == 3
    assert await gateway.metric("forebay_backend_breaker", backend="only") == 0
    assert (await ask(gateway, None, path="/tokenize"))[0] == 401
    assert (await ask(gateway, key.secret))[0] == 200
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{gateway.url}/v1/models") as answer:
            assert answer.status == 401
        headers = {"x-api-key": key.secret}
        async with session.get(f"{gateway.url}/v1/models", headers=headers) as answer:
            assert answer.status == 200
        async with session.get(f"{gateway.url}/metrics") as answer:
            assert answer.status == 200
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-no") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    log = tmp_path / "log"
    await gateway.until(lambda: '"api_key":"k"' in log.read_text())
    assert key.secret not in log.read_text()


async def test_limits_are_told_as_openai_does_and_kept(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine, rich, poor = await start_engine(), new_key(), new_key()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        keys={
            "rich": {"tenant": "rich", "sha256": rich.sha256},
            "poor": {"tenant": "poor", "sha256": poor.sha256},
        },
        tenants={
            "poor": {"requests_per_minute": 3, "tokens_per_minute": 10_000, "models": [MODEL]},
        },
    )
    for left in (2, 1, 0):
        status, headers, _ = await ask(gateway, poor.secret)
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "3"
        assert headers["x-ratelimit-remaining-requests"] == str(left)
        assert headers["x-ratelimit-limit-tokens"] == "10000"
    status, headers, body = await ask(gateway, poor.secret)
    assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 50 <= int(headers["retry-after"]) <= 61
    assert 50_000 <= int(headers["retry-after-ms"]) <= 61_000
    status, headers, _ = await ask(gateway, rich.secret)
    assert status == 200
    assert not any(name.startswith("x-ratelimit") for name in headers)


async def test_tokens_are_settled_on_what_the_answer_says(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine, key = await start_engine(), new_key()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {"tokens_per_minute": 1000}},
    )
    for stream in (False, True):
        _, headers, body = await ask(gateway, key.secret, stream=False, max_tokens=1)
        before = int(headers["x-ratelimit-remaining-tokens"])
        used = body["usage"]["prompt_tokens"]
        await ask(gateway, key.secret, stream=stream, max_tokens=500)
        _, headers, _ = await ask(gateway, key.secret, stream=False, max_tokens=1)
        spent = before - int(headers["x-ratelimit-remaining-tokens"])
        assert 2 * used <= spent < 2 * used + 400, "not the 500 that were reserved"


async def test_keys_and_limits_in_redis_hold_within_a_second(
    start_engine: StartEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    engine, key = await start_engine(), new_key()
    with redis_server(tmp_path) as redis:
        gateway = await start_gateway(backends={"only": {"url": engine.url}}, redis=url_of(redis))
        await gateway.until(lambda: gateway.app.control.up is True)
        assert (await ask(gateway, None))[0] == 200
        redis.hset("forebay:key:k", mapping={"tenant": "acme", "sha256": key.sha256})
        assert await soon(gateway, None, 401)
        assert await soon(gateway, key.secret, 200)
        redis.hset("forebay:tenant:acme", "models", "another")
        assert await soon(gateway, key.secret, 403)
        redis.hdel("forebay:tenant:acme", "models")
        redis.hset(f"forebay:model:{MODEL}", "paused", "on")
        assert await soon(gateway, key.secret, 503)
        redis.delete(f"forebay:model:{MODEL}")
        assert await soon(gateway, key.secret, 200)
        redis.delete("forebay:key:k")
        assert await soon(gateway, None, 200)


async def soon(gateway: Gateway, key: str | None, status: int) -> bool:
    """Whether the answer becomes this one within a second."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        if (await ask(gateway, key))[0] == status:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_concurrent_requests_of_a_tenant_are_bounded(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine, key = await start_engine("--step-ms", "30"), new_key()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {"concurrent": 2}},
    )
    answers = await asyncio.gather(*(ask(gateway, key.secret, max_tokens=10) for _ in range(6)))
    statuses = sorted(status for status, _, _ in answers)
    assert statuses == [200, 200, 429, 429, 429, 429]
    assert (await ask(gateway, key.secret))[0] == 200


async def test_an_open_gateway_says_so_and_peak_hours_lower_limits(
    start_engine: StartEngine, start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    backends = {"only": {"url": (await start_engine()).url, "limit": 10}}
    caplog.set_level("INFO", "forebay")
    quiet = await start_gateway(backends=backends)
    assert "no API keys" not in caplog.text
    assert quiet.app.driver.snapshot().backends[0].limit == 10
    loud = await start_gateway(
        backends=backends, host="0.0.0.0", peak={"windows": "* * * * *", "limit_share": 0.8}
    )
    assert "no API keys are configured: whoever reaches 0.0.0.0 may use" in caplog.text
    assert loud.app.driver.snapshot().backends[0].limit == 8
