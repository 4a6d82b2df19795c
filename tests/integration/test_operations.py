"""What operators do while requests run: Redis keys, bursts, warmth, a drain."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Gateway, running_command
from tests.redis_server import redis_server, url_of

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
ENDLESS = {"ignore_eos": True}


async def backend_of(gateway: Gateway, content: str = "Hello") -> str:
    async with gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": content}], max_tokens=1
        )
    return str(raw.headers["x-forebay-backend"])


async def test_weight_0_stops_new_requests_within_a_second(
    start_engine: StartEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    backends = {name: {"url": (await start_engine()).url} for name in ("a", "b")}
    with redis_server(tmp_path) as redis:
        gateway = await start_gateway(backends=backends, redis=url_of(redis))
        await gateway.until(lambda: gateway.app.control.up is True)
        for drained, other in (("a", "b"), ("b", "a")):
            redis.delete(f"forebay:backend:{other}")
            redis.hset(f"forebay:backend:{drained}", "weight", "0")
            changed = loop.time()
            version = gateway.app.control.version
            await gateway.until(lambda v=version: gateway.app.control.version > v)  # type: ignore[misc]
            assert loop.time() - changed < 1.0
            assert {await backend_of(gateway) for _ in range(4)} == {other}
        redis.hset("forebay:backend:a", "weight", "heavy")
        await gateway.until(lambda: bool(gateway.app.control.reasons))
        ready = await gateway.ready()
        assert "weight" in ready["rejected_settings"]["forebay:backend:a"]
        assert await gateway.metric("forebay_settings_rejected_total") == 1
        assert await backend_of(gateway) == "a"


def has_its_slots(gateway: Gateway) -> bool:
    """Whether Redis has granted this gateway, alone, all of its backends' slots."""
    return all(backend.limit == 64 for backend in gateway.app.driver.snapshot().backends) and (
        gateway.app.control.up is True
    )


async def test_a_class_bound_moves_while_running(
    start_engine: StartEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    backends = {
        name: {"url": (await start_engine()).url, "classes": [name]} for name in ("short", "long")
    }
    with redis_server(tmp_path) as redis:
        gateway = await start_gateway(backends=backends, redis=url_of(redis))
        await gateway.until(lambda: has_its_slots(gateway))
        assert await backend_of(gateway, "water " * 100) == "short"
        before = gateway.app.control.version
        redis.hset("forebay:class:short", "max_prompt_tokens", "50")
        await gateway.until(lambda: gateway.app.control.version > before)
        assert await backend_of(gateway, "water " * 100) == "long"


async def test_a_burst_halves_the_long_pool_and_it_recovers(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--prefill-us", "100")
    gateway = await start_gateway(
        backends={"long": {"url": engine.url, "classes": ["long"], "limit": 8}},
        burst={"clean_interval": 0.2},
    )

    def limit() -> tuple[int, int]:
        pools = {p.service_class: p for p in gateway.app.driver.snapshot().pools}
        return pools["long"].limit_configured, pools["long"].limit_effective

    assert limit() == (8, 8)
    async with gateway.client() as client, asyncio.TaskGroup() as group:
        for number in range(2):  # two different ones: what is cached is no work, and no burst
            group.create_task(
                client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": f"{number}: " + "water " * 4000}],
                    max_tokens=1,
                )
            )
        await gateway.until(lambda: limit() == (8, 4))
        assert (
            await gateway.metric("forebay_pool_limit_requests", pool="long", kind="effective") == 4
        )
    await gateway.until(lambda: limit() == (8, 8))
    assert await gateway.metric("forebay_decisions_total", pool="long", what="burst") == 1
    assert await gateway.metric("forebay_decisions_total", pool="long", what="limit recovers") >= 1


async def test_no_traffic_before_the_warm_up_has_come_back(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--fail", "slow_start")
    gateway = await start_gateway(backends={"only": {"url": engine.url}}, wait=False)
    status, _ = await gateway.get("/ready")
    assert status == 503
    async with gateway.client() as client:
        with pytest.raises(openai.InternalServerError, match="retry") as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 503
    await engine.fail("none")
    await gateway.until(gateway.app.status.all_ready)
    assert await backend_of(gateway) == "only"
    assert (await engine.counts())["vllm:prompt_tokens_total"] > 0


async def test_an_idle_backend_is_kept_warm(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}}, warm={"requests": 2, "keep_warm_after": 0.3}
    )
    before = (await engine.counts())["vllm:prompt_tokens_total"]

    async def more() -> bool:
        return (await engine.counts())["vllm:prompt_tokens_total"] > before

    await gateway.until(more)
    assert await gateway.metric("forebay_requests_total") == 0


async def test_drain_lets_streams_finish_and_refuses_new_requests(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--step-ms", "20")
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    body = {"model": MODEL, "messages": HELLO, "stream": True, "max_tokens": 40}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{gateway.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            draining = gateway.app.tasks.spawn("drain", gateway.app.drain(10.0))
            text = await answer.text()
        assert text.endswith("data: [DONE]\n\n")
        await draining


@pytest.mark.slow
async def test_the_command_drains_on_sigint_and_exits(
    start_engine: StartEngine, cache_dir: Path
) -> None:
    engine = await start_engine("--step-ms", "20")
    body = {"model": MODEL, "messages": HELLO, "stream": True, "max_tokens": 40}
    async with running_command(cache_dir, engine) as command, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{command.port}/v1/chat/completions"
        async with session.post(url, json=body) as answer:
            assert answer.status == 200
            command.process.send_signal(signal.SIGINT)
            assert (await answer.text()).endswith("data: [DONE]\n\n")
        assert await asyncio.wait_for(command.process.wait(), 20) == 0


async def test_a_client_that_says_how_long_it_waits_is_not_kept_waiting_longer(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--step-ms", "50")
    gateway = await start_gateway(backends={"only": {"url": engine.url, "limit": 1}})
    loop = asyncio.get_running_loop()
    async with gateway.client() as client:
        first = await client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=100, stream=True, extra_body=ENDLESS
        )
        began = loop.time()
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(
                model=MODEL, messages=HELLO, extra_headers={"x-request-timeout": "0.5"}
            )
        assert loop.time() - began < 2.0
        assert caught.value.code == "expired"
        await first.close()
