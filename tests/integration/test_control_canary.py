"""Canaries at a real gateway: who is sent where, and copies of which nobody hears."""

from typing import Any

import aiohttp

from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Engine, Gateway

SLOW = {"step_time": 3600}


async def ask(gateway: Gateway, number: int, session: str = "") -> str:
    """The backend that answered."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{number}: Hello"}],
        "max_tokens": 2,
        "stream": True,
    }
    headers = {"x-session-id": session} if session else {}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        assert answer.status == 200
        assert (await answer.text()).endswith("data: [DONE]\n\n")
        return answer.headers["x-forebay-backend"]


async def served(engine: Engine) -> float:
    return (await engine.counts()).get("vllm:generation_tokens_total", 0.0)


async def test_sessions_are_split_and_stay(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    backends = {name: {"url": (await start_engine()).url} for name in ("a", "b")}
    canary = {"old": ["a"], "new": ["b"], "steps": [0.5, 1], **SLOW}
    gateway = await start_gateway(backends=backends, canaries={MODEL: canary})
    trials = gateway.app.brain.steering.canaries.trials
    await gateway.until(lambda: trials[MODEL].progress is not None)
    first = [await ask(gateway, n, session=f"s{n}") for n in range(12)]
    assert set(first) == {"a", "b"}
    assert [await ask(gateway, n, session=f"s{n}") for n in range(12)] == first
    ready = await gateway.ready()
    assert ready["steering"]["canaries"][MODEL]["share"] == 0.5


async def mirrored(
    start_engine: StartEngine, start_gateway: StartGateway
) -> tuple[Gateway, Engine]:
    """A gateway whose canary gets a copy of each request and hardly one of its own, and the engine
    that the copies go to."""
    old, new = await start_engine(), await start_engine()
    canary = {"old": ["a"], "new": ["b"], "steps": [1e-9, 1], "shadow": 1.0, **SLOW}
    gateway = await start_gateway(
        backends={"a": {"url": old.url}, "b": {"url": new.url}}, canaries={MODEL: canary}
    )
    trials = gateway.app.brain.steering.canaries.trials
    await gateway.until(lambda: trials[MODEL].progress is not None)
    return gateway, new


async def test_copies_go_to_the_new_group_and_nobody_hears_of_them(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    gateway, new = await mirrored(start_engine, start_gateway)
    before = await served(new)
    assert {await ask(gateway, n) for n in range(5)} == {"a"}

    async def all_came() -> bool:
        return await served(new) - before == 10.0

    await gateway.until(all_came)
    await gateway.until(lambda: gateway.in_flight() == 0)
    assert await gateway.metric("forebay_requests_total") == 5


async def test_a_copy_that_fails_is_nobodys_business(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    gateway, new = await mirrored(start_engine, start_gateway)
    await new.fail("reset_mid_stream")
    assert {await ask(gateway, n) for n in range(5)} == {"a"}
    await gateway.until(lambda: gateway.in_flight() == 0)
