"""What clients see when engines die, hang or are busy, and what is left afterwards: nothing."""

import asyncio
import os
from typing import Any

import aiohttp
import openai
import pytest

from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Engine, Gateway

SLOW = ("--step-ms", "20")
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
Stream = openai.AsyncStream[Any]


async def two_engines(
    start_engine: StartEngine, start_gateway: StartGateway, **settings: Any
) -> tuple[dict[str, Engine], Gateway]:
    engines = {"a": await start_engine(*SLOW), "b": await start_engine(*SLOW)}
    backends = {name: {"url": engine.url} for name, engine in engines.items()}
    return engines, await start_gateway(backends=backends, **settings)


async def open_streams(client: openai.AsyncOpenAI, count: int) -> list[tuple[str, Stream]]:
    """Streams that have begun, each with the name of its backend."""

    async def one() -> tuple[str, Stream]:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=HELLO,
            stream=True,
            max_tokens=100,
            extra_body={"ignore_eos": True},
        )
        return raw.headers["x-forebay-backend"], raw.parse()

    return await asyncio.gather(*(one() for _ in range(count)))


async def to_the_end(stream: Stream) -> str:
    """How a stream ended: its finish_reason, or the code of the error in it."""
    try:
        reasons = [c.choices[0].finish_reason async for c in stream if c.choices]
    except openai.APIError as error:
        return str(error.code)
    return str(reasons[-1])


async def test_kill_9_ends_its_streams_with_an_error_event_and_spares_the_others(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engines, gateway = await two_engines(start_engine, start_gateway)
    async with gateway.client() as client:
        streams = await open_streams(client, 8)
        assert {name for name, _ in streams} == {"a", "b"}
        endings = [asyncio.ensure_future(to_the_end(s)) for _, s in streams]  # noqa: TID251
        engines["a"].kill()
        for (name, _), ending in zip(streams, endings, strict=True):
            assert await ending == ("backend_stream" if name == "a" else "length")
        for _ in range(6):
            raw = await client.chat.completions.with_raw_response.create(
                model=MODEL, messages=HELLO, max_tokens=1
            )
            assert raw.headers["x-forebay-backend"] == "b"
    assert gateway.in_flight() == 0
    assert (await gateway.ready())["backends"]["a"]["state"] in ("down", "probing")


async def test_a_request_whose_backend_died_unnoticed_is_served_by_another(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engines, gateway = await two_engines(start_engine, start_gateway)
    for name, other in (("a", "b"), ("b", "a")):
        await engines[name].fail("refuse")
        async with gateway.client() as client:
            for _ in range(3):
                raw = await client.chat.completions.with_raw_response.create(
                    model=MODEL, messages=HELLO, max_tokens=1
                )
                assert raw.headers["x-forebay-backend"] == other
        await engines[name].fail("none")
        await gateway.until(gateway.app.status.all_ready)
    assert await gateway.metric("forebay_retries_total") >= 1


async def test_a_busy_engine_is_not_taken_for_dead(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engines, gateway = await two_engines(start_engine, start_gateway, retry_share=1.0)
    await engines["a"].fail("busy")
    await engines["b"].fail("busy")
    async with gateway.client() as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)
    assert caught.value.status_code == 503
    assert caught.value.code == "engine_busy"
    assert "retry-after" in caught.value.response.headers
    states = {name: b["state"] for name, b in (await gateway.ready())["backends"].items()}
    assert states == {"a": "ready", "b": "ready"}


async def test_a_stream_that_stalls_is_cut_with_an_error_event(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}}, timeouts={"token_gap": 0.3}
    )
    await engine.fail("hang_after_first")
    async with gateway.client() as client:
        ((_, stream),) = await open_streams(client, 1)
        assert await to_the_end(stream) == "backend_token_gap"
    assert gateway.in_flight() == 0


async def test_an_engine_that_hangs_is_a_504(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}}, timeouts={"first_token": 0.3}
    )
    await engine.fail("hang")
    async with gateway.client() as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 504
    assert caught.value.code == "backend_first_token"


async def test_with_every_backend_down_the_answer_is_503_and_then_it_recovers(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    engine.kill()
    await engine.process.wait()
    async with gateway.client() as client:
        with pytest.raises(openai.APIStatusError):
            await client.chat.completions.create(model=MODEL, messages=HELLO)
        await gateway.until(lambda: not gateway.app.status.all_ready())
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
        assert caught.value.status_code == 503
        assert int(caught.value.response.headers["retry-after"]) >= 1
        port = int(engine.url.rsplit(":", 1)[1])
        await start_engine(port=port)
        await gateway.until(gateway.app.status.all_ready)
        assert await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)


@pytest.fixture
async def slow(start_engine: StartEngine, start_gateway: StartGateway) -> Any:
    engine = await start_engine("--step-ms", "20", "--prefill-us", "200")
    return engine, await start_gateway(backends={"only": {"url": engine.url}})


@pytest.mark.parametrize("phase", ["decode", "prefill", "queue"])
async def test_a_client_that_leaves_ends_its_request_in_the_engine(phase: str, slow: Any) -> None:
    engine, gateway = slow
    if phase == "queue":
        first = await start_request(gateway, "Hello", limit=1)
        await gateway.until(lambda: gateway.in_flight() == 1)
    words = "water " * (5000 if phase == "prefill" else 1)
    writer = await start_request(gateway, words, limit=1 if phase == "queue" else None)
    if phase == "queue":
        queued = gateway.app.driver.snapshot
        await gateway.until(lambda: sum(p.queued for p in queued().pools) == 1)
        writer.close()
        await gateway.until(lambda: sum(p.queued for p in queued().pools) == 0)
        first.close()
    else:
        await gateway.until(lambda: running(engine, 1))
        if phase == "decode":
            await gateway.until(lambda: has_backlog(gateway, 0))
        writer.close()
    await gateway.until(lambda: running(engine, 0))
    await gateway.until(lambda: gateway.in_flight() == 0)
    assert await gateway.metric("forebay_requests_total", outcome="abandoned", status="499") >= 1


async def start_request(
    gateway: Gateway, content: str, *, limit: int | None = None
) -> asyncio.StreamWriter:
    """A streamed chat on a connection of its own, which the caller may close at any time."""
    if limit is not None:
        gateway.app.catalogue.reconfigure(with_limit(gateway, limit))
    body = (
        f'{{"model":"{MODEL}","stream":true,"max_tokens":2000,'
        f'"messages":[{{"role":"user","content":"{content}"}}]}}'
    ).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


def with_limit(gateway: Gateway, limit: int) -> Any:
    config = gateway.app.config
    backends = {n: b.model_copy(update={"limit": limit}) for n, b in config.backends.items()}
    return config.model_copy(update={"backends": backends})


async def running(engine: Engine, wanted: int) -> bool:
    counts = await engine.counts()
    return counts["vllm:num_requests_running"] + counts["vllm:num_requests_waiting"] == wanted


def has_backlog(gateway: Gateway, wanted: int) -> bool:
    return gateway.app.driver.snapshot().backends[0].prefill_backlog == wanted


async def test_nothing_is_left_after_a_storm_of_leaving_clients(slow: Any) -> None:
    engine, gateway = slow
    descriptors = len(os.listdir("/proc/self/fd"))
    tasks = len(gateway.app.tasks)
    for round_ in range(10):
        writers = [await start_request(gateway, "Hello") for _ in range(10)]
        if round_ % 2:
            await gateway.until(lambda: gateway.in_flight() > 0)
        for writer in writers:
            writer.close()
    await gateway.until(lambda: gateway.in_flight() == 0)
    await gateway.until(lambda: running(engine, 0))
    await gateway.until(lambda: len(gateway.app.tasks) == tasks)
    await gateway.until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 1)


async def test_a_client_that_reads_slowly_slows_its_stream_not_the_memory(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    body = {"model": MODEL, "messages": HELLO, "stream": True, "max_tokens": 20_000}
    body["ignore_eos"] = True
    async with (
        aiohttp.ClientSession(read_bufsize=1024) as session,
        session.post(f"{gateway.url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        await gateway.until(lambda: any(c.paused for c in gateway.app.server.connections))
    await gateway.until(lambda: gateway.in_flight() == 0)


async def test_without_another_backend_there_is_one_try(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(backends={"only": {"url": engine.url}})
    await engine.fail("busy")
    async with gateway.client() as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)
    assert await gateway.metric("forebay_retries_total") == 0
