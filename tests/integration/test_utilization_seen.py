"""What engines should take of their GPU's memory, as an operator sees it: page and metrics."""

import asyncio
from typing import Any

import aiohttp

from tests.gateway.ui.test_listener import events_of
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Gateway

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 1,
    "stream": True,
}
CLASSES = {"short": {"max_prompt_tokens": 1024, "ttft_target": 0.001}, "long": {}}
METRIC = "forebay_gpu_memory_utilization_ratio"


async def ask(gateway: Gateway, times: int) -> None:
    """One after the other, each late enough to be timed."""
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            url = f"{gateway.url}/v1/chat/completions"
            async with session.post(url, json=BODY) as answer:
                assert answer.status == 200
                await answer.read()


async def test_a_recommendation_is_on_the_page_and_in_the_metrics(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    told = await start_engine("--gpu-memory-utilization", "0.85", "--step-ms", "25")
    silent = await start_engine()
    backends = {
        "told": {"url": told.url, "classes": ["short"]},
        "silent": {"url": silent.url, "classes": ["long"]},
    }
    async with asyncio.timeout(60):
        gateway = await start_gateway(backends=backends, classes=CLASSES, admin={"port": 0})
        assert await gateway.metric(METRIC, backend="told", kind="recommended") == 0.85
        while await gateway.metric(METRIC, backend="told", kind="recommended") == 0.85:
            await ask(gateway, 5)
        assert await gateway.metric(METRIC, backend="told", kind="present") == 0.85
        assert await gateway.metric(METRIC, backend="told", kind="recommended") == 0.80
        assert f'{METRIC}{{backend="silent"' not in (await gateway.get("/metrics"))[1]
        async with events_of(gateway) as events:
            _, hello = await events.next("hello")
        rows = {row["name"]: row["memory"] for row in hello["now"]["backends"]}
        assert rows["silent"] is None
        assert (rows["told"]["present"], rows["told"]["wanted"]) == (0.85, 0.80)
        assert "of their target on average, over 1" in rows["told"]["why"]
