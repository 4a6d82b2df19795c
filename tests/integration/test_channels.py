"""What depends on the engine behind: whether it gets ids or text, and what never reaches it."""

from typing import Any

import openai
import pytest

from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL

pytestmark = pytest.mark.slow

MESSAGES: list[Any] = [{"role": "user", "content": "What is a forebay?"}]


async def test_headers_about_the_inside_are_off_by_default(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"only": {"url": engine.url}}, expose_timings=False)
    async with gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, max_tokens=2
        )
    assert not [name for name in raw.headers if name.startswith("x-forebay")]
    assert "server-timing" not in raw.headers
    assert raw.headers["x-request-id"]


@pytest.mark.parametrize("mode", ["ignore_ids", "refuse_ids", "truncate_ids", "wrong_tokenizer"])
async def test_an_engine_that_is_not_proved_to_use_our_ids_gets_text(
    mode: str, start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--fail", mode)
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    async with gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, max_tokens=4
        )
    assert raw.headers["x-forebay-channel"] == "text"
    standing = (await gateway.ready())["backends"]["only"]["models"][MODEL]
    assert standing["chat"] == "text"
    assert standing["reason"]


async def test_a_prompt_beyond_the_context_never_reaches_the_engine(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine("--max-model-len", "256")
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    before = await engine.counts()
    async with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "word " * 400}]
            )
    assert caught.value.code == "context_length_exceeded"
    after = await engine.counts()
    assert after["vllm:prompt_tokens_total"] == before["vllm:prompt_tokens_total"]


async def test_an_engine_that_stops_using_our_ids_gets_text_after_a_few_answers(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    await engine.fail("truncate_ids")
    channels = []
    async with gateway.client() as client:
        for _ in range(5):
            raw = await client.chat.completions.with_raw_response.create(
                model=MODEL, messages=MESSAGES, max_tokens=2
            )
            channels.append(raw.headers["x-forebay-channel"])
    assert channels == ["ids", "ids", "ids", "text", "text"]
    assert await gateway.metric("forebay_parity_mismatches_total", backend="only") == 3
    standing = (await gateway.ready())["backends"]["only"]["models"][MODEL]
    assert "counted" in standing["reason"]
