"""How prompts are handed over: in the faster of two proved ways, watched, and unseen by clients."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.bands import ChannelChoice
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Engine, Gateway

pytestmark = pytest.mark.slow

CHAT = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is a forebay?"}],
    "max_tokens": 4,
    "temperature": 0,
}
COMPLETION = {"model": MODEL, "prompt": "A forebay is", "max_tokens": 4, "temperature": 0}
ASKED = [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)]
# What differs between two answers to the same question.
_OWN = re.compile(rb'"id":"[^"]*"|"created":\d+')


async def post(url: str, body: dict[str, Any]) -> tuple[bytes, str]:
    """The answer, less its id and time, and the channel that the gateway names."""
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        assert answer.status == 200
        channel = answer.headers.get("x-forebay-channel", "")
        return _OWN.sub(b"", await answer.read()), channel


async def seen(engine: Engine) -> dict[str, Any]:
    """The body of the last request that the engine got."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{engine.url}/fake/seen") as answer,
    ):
        return (await answer.json())["last"]  # type: ignore[no-any-return]


async def standing(gateway: Gateway) -> dict[str, Any]:
    return (await gateway.ready())["backends"]["only"]["models"][MODEL]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("path", "asked"), ASKED)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": False}},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "return_token_ids": True},
        {"stream": True, "n": 2},
        {"return_token_ids": True},
    ],
)
async def test_what_is_watched_is_not_to_be_seen(
    path: str,
    asked: dict[str, Any],
    fields: dict[str, Any],
    start_engine: StartEngine,
    start_gateway: StartGateway,
    cache_dir: Path,
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        tokenizer={"cache_dir": cache_dir, "parity_sample": 2, "channel": "ids"},
    )
    direct, _ = await post(engine.url + path, asked | fields)
    plain, channel = await post(gateway.url + path, asked | fields)
    assert (plain, channel) == (direct, "ids")
    last = await seen(engine)
    if fields.get("stream") and fields.get("n") is None:
        assert last["stream_options"]["include_usage"] is True
    assert last.get("return_token_ids") == fields.get("return_token_ids")
    sampled, channel = await post(gateway.url + path, asked | fields)
    assert (sampled, channel) == (direct, "ids")
    if fields.get("n") is None:
        assert (await seen(engine))["return_token_ids"] is True
    assert await gateway.metric("forebay_parity_mismatches_total") == 0


async def test_an_engine_that_lost_our_trust_stays_without_ids_also_after_its_restart(
    start_engine: StartEngine, start_gateway: StartGateway, cache_dir: Path
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        tokenizer={"cache_dir": cache_dir, "channel": "ids", "parity_tolerated": 0},
    )
    url = gateway.url + "/v1/chat/completions"
    await engine.fail("truncate_ids")
    assert [(await post(url, CHAT | {"stream": True}))[1] for _ in range(2)] == ["ids", "text"]
    assert await gateway.metric("forebay_parity_distrusted_total", backend="only") == 1
    engine.kill()
    await engine.process.wait()
    with pytest.raises(AssertionError):  # traffic finds out that it is gone
        await post(url, CHAT)
    assert not gateway.app.status.all_ready()
    await start_engine(port=int(engine.url.rsplit(":", 1)[1]))
    await gateway.until(gateway.app.status.all_ready)
    assert (await post(url, CHAT))[1] == "text"
    assert "until an operator" in (await standing(gateway))["reason"]

    # An operator who sets the channel anew has it judged again.
    catalogue, config = gateway.app.brain.catalogue, gateway.app.config
    for channel in ("text", "ids"):
        tokenizer = config.tokenizer.model_copy(update={"channel": ChannelChoice(channel)})
        catalogue.reconfigure(config.model_copy(update={"tokenizer": tokenizer}))

        async def settled(channel: str = channel) -> bool:
            bands = (await standing(gateway))["chat_bands"]
            return [band["channel"] for band in bands] == [channel]

        await gateway.until(settled)
    assert (await post(url, CHAT))[1] == "ids"


async def test_the_faster_channel_is_found_by_size(
    start_engine: StartEngine, start_gateway: StartGateway, cache_dir: Path
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}}, tokenizer={"cache_dir": cache_dir}
    )
    told = await standing(gateway)
    for api in ("chat_bands", "completion_bands"):
        bands = told[api]
        assert [band["up_to_tokens"] for band in bands] == [1024, 4096, None]
        for band in bands:
            faster = band["ttft_text_ms"] < 0.97 * band["ttft_ids_ms"]
            assert band["channel"] == ("text" if faster else "ids")
            assert band["ttft_ids_ms"] > 0


async def test_an_operator_may_pin_the_channel(
    start_engine: StartEngine, start_gateway: StartGateway, cache_dir: Path
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        tokenizer={"cache_dir": cache_dir, "channel": "text"},
    )
    assert (await post(gateway.url + "/v1/chat/completions", CHAT))[1] == "text"
    assert (await seen(engine))["messages"] == CHAT["messages"]
    told = await standing(gateway)
    assert told["chat"] == "ids"
    assert told["chat_bands"] == [
        {"up_to_tokens": None, "channel": "text", "ttft_ids_ms": None, "ttft_text_ms": None}
    ]


async def test_a_request_that_waits_while_trust_is_lost_goes_as_text(
    start_engine: StartEngine, start_gateway: StartGateway, cache_dir: Path
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url, "limit": 1}},
        tokenizer={"cache_dir": cache_dir, "channel": "ids"},
    )
    url = gateway.url + "/v1/chat/completions"
    await engine.fail("hang")
    async with aiohttp.ClientSession() as session:
        loop = asyncio.get_running_loop()
        first = loop.create_task(session.post(url, json=CHAT))
        await gateway.until(lambda: gateway.in_flight() == 1)
        second = loop.create_task(post(url, CHAT))
        await gateway.until(lambda: sum(p.queued for p in gateway.app.driver.snapshot().pools) == 1)
        gateway.app.brain.catalogue.distrust("only", MODEL, "a test says so")
        await engine.fail("none")
        first.cancel()
        answer, channel = await second
    assert channel == "text"
    assert json.loads(answer.replace(b"{,", b"{").replace(b",,", b","))["choices"]
