"""A request through the gateway, as the official client sends it and as it sees the answer."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio

from tests.integration.parts import MODEL, Engine, Gateway, running_engine, running_gateway

MESSAGES: list[Any] = [{"role": "user", "content": "What is a forebay?"}]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Pair:
    """One engine, a gateway in front of it, and a client for each."""

    engine: Engine
    gateway: Gateway
    direct: openai.AsyncOpenAI
    through: openai.AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(cache_dir: Path) -> AsyncIterator[Pair]:
    """Shared by the tests of this file, which change neither part."""
    async with running_engine("--max-model-len", "16384") as engine:
        backends = {"only": {"url": engine.url}}
        direct = openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)
        async with (
            running_gateway(cache_dir, backends=backends) as gateway,
            gateway.client() as through,
            direct,
        ):
            yield Pair(engine, gateway, direct, through)


@pytest.fixture
def gateway(pair: Pair) -> Gateway:
    return pair.gateway


async def test_a_chat_gives_the_same_answer_as_the_engine_itself(pair: Pair) -> None:
    answers = [
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=12)
        for client in (pair.direct, pair.through)
    ]
    assert answers[0].choices[0].message.content
    assert answers[0].choices == answers[1].choices
    assert answers[0].usage == answers[1].usage


async def test_a_stream_arrives_chunk_by_chunk_with_its_usage(pair: Pair) -> None:
    texts, usages = [], []
    for client in (pair.direct, pair.through):
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert len(chunks) >= 9
        texts.append("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        usages.append(chunks[-1].usage)
    assert texts[0] == texts[1]
    assert usages[0] == usages[1]
    assert usages[0] is not None


async def test_a_completion_gives_the_same_answer_as_the_engine_itself(pair: Pair) -> None:
    answers = [
        await client.completions.create(model=MODEL, prompt="Once upon", max_tokens=6)
        for client in (pair.direct, pair.through)
    ]
    assert answers[0].choices[0].text == answers[1].choices[0].text
    assert answers[0].usage == answers[1].usage


async def test_prompts_go_as_ids_and_the_headers_say_so(gateway: Gateway) -> None:
    async with gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, max_tokens=4, extra_headers={"x-request-id": "mine-1"}
        )
    answer = raw.parse()
    assert raw.headers["x-forebay-channel"] == "ids"
    assert raw.headers["x-forebay-class"] == "short"
    assert raw.headers["x-forebay-backend"] == "only"
    assert raw.headers["x-request-id"] == "mine-1"
    assert int(raw.headers["x-forebay-prompt-tokens"]) == answer.usage.prompt_tokens
    stages = [part.split(";")[0].strip() for part in raw.headers["server-timing"].split(",")]
    assert stages == ["read", "tokenize", "queue", "connect", "backend"]


async def test_an_unknown_model_is_a_404_that_says_what_to_do(gateway: Gateway) -> None:
    async with gateway.client() as client:
        with pytest.raises(openai.NotFoundError, match="/v1/models") as caught:
            await client.chat.completions.create(model="gpt-99", messages=MESSAGES)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[1, 2]",
        b'{"model": "forebay-demo", "messages": [{"role": "user", "content": NaN}]}',
        b'{"model": "forebay-demo", "messages": [{"role": "user", "content": "\xff"}]}',
        b"[" * 100_000,
    ],
)
async def test_a_bad_body_is_a_400_of_the_documented_shape(gateway: Gateway, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.url}/v1/chat/completions", data=body) as answer,
    ):
        assert answer.status == 400
        error = json.loads(await answer.text())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


async def test_a_long_prompt_is_prepared_by_a_worker_and_classed_long(gateway: Gateway) -> None:
    async with gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "water " * 6000}], max_tokens=1
        )
    assert raw.headers["x-forebay-class"] == "long"
    assert raw.headers["x-forebay-channel"] == "ids"
    lanes = (await gateway.ready())["tokenizers"]["lanes"]
    assert any(lane["done"] for lane in lanes)


async def test_models_health_and_unknown_paths(gateway: Gateway) -> None:
    async with gateway.client() as client:
        models = await client.models.list()
    assert [model.id for model in models.data] == [MODEL]
    assert models.data[0].model_dump()["max_model_len"] > 0
    assert (await gateway.get("/health"))[0] == 200
    status, text = await gateway.get("/v1/nothing")
    assert status == 404
    assert "/v1/chat/completions" in json.loads(text)["error"]["message"]
    status, text = await gateway.get("/v1/completions")
    assert status == 405
    assert "POST" in json.loads(text)["error"]["message"]


async def test_what_a_client_may_not_control_is_not_sent_on(gateway: Gateway) -> None:
    async with gateway.client() as client:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=2,
            extra_body={"kv_transfer_params": {"prompt_token_ids": [1, 2, 3]}, "priority": -5},
        )
        plain = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2)
    assert answer.usage == plain.usage


async def test_each_request_is_counted_once_with_its_outcome(gateway: Gateway) -> None:
    async def counted() -> list[float]:
        name = "forebay_requests_total"
        return [
            await gateway.metric(name, outcome="completed", channel="ids", model=MODEL),
            await gateway.metric(name, outcome="invalid", status="404"),
            await gateway.metric(name),
        ]

    before = await counted()
    async with gateway.client() as client:
        for _ in range(3):
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-99", messages=MESSAGES)
    after = await counted()
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 1, 4]


@pytest.mark.parametrize(
    "question",
    [
        {"prompt": "A forebay is a pool of water."},
        {"prompt": "Hi 123", "return_token_strs": True},
        {"messages": MESSAGES},
    ],
)
async def test_tokenize_and_detokenize_answer_as_the_engine_does(
    question: dict[str, object], pair: Pair
) -> None:
    urls = (pair.gateway.url, pair.engine.url)
    async with aiohttp.ClientSession() as session:

        async def ask(url: str, path: str, body: object) -> object:
            async with session.post(url + path, json=body) as answer:
                assert answer.status == 200
                return await answer.json()

        body = {"model": MODEL, **question}
        ours, theirs = [await ask(url, "/tokenize", body) for url in urls]
        assert ours == theirs
        back = {"model": MODEL, "tokens": ours["tokens"]}  # type: ignore[index]
        texts = [await ask(url, "/detokenize", back) for url in urls]
        assert texts[0] == texts[1]
