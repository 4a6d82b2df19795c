"""Every failure that the simulated server can be told to show, as a client meets it."""

import asyncio

import aiohttp
import pytest

from bench.fake_vllm import Mode
from tests.bench.conftest import Fake, parse_events

CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
IDS = {"kv_transfer_params": {"prompt_token_ids": [100, 200, 300]}}


async def fail(fake: Fake, mode: Mode, **more) -> None:
    assert "error" not in await fake.post("/fake/fail", mode=mode, **more)


async def test_refuse_resets_until_it_is_lifted(fake: Fake):
    await fail(fake, Mode.REFUSE)
    for path in (CHAT, "/health"):
        with pytest.raises(aiohttp.ClientConnectionError):
            await fake.post(path, messages=QUESTION)
    await fail(fake, Mode.NONE)
    assert "choices" in await fake.post(CHAT, messages=QUESTION)


async def test_busy_hits_as_many_requests_as_were_asked_for(fake: Fake):
    await fail(fake, Mode.BUSY, times=2)
    codes = []
    for _ in range(3):
        async with fake.http.post(CHAT, json={"messages": QUESTION}) as response:
            codes.append(response.status)
    assert codes == [503, 503, 200]


async def test_hang_sends_no_head(fake: Fake):
    await fail(fake, Mode.HANG)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fake.http.post(CHAT, json={"messages": QUESTION, "stream": True})
    async with fake.http.get("/health") as response:
        assert response.status == 200


async def test_hang_after_first_sends_one_token(fake: Fake):
    await fail(fake, Mode.HANG_AFTER_FIRST)
    async with fake.http.post(CHAT, json={"messages": QUESTION, "stream": True}) as response:
        received = await response.content.readuntil(b"You")
        received += await response.content.readuntil(b"\n\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.read(1), 0.2)
    role, token = parse_events(received)
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert token["choices"][0]["delta"]["content"] == "You"


async def test_reset_mid_stream_breaks_the_body_off(fake: Fake):
    await fail(fake, Mode.RESET_MID_STREAM)
    with pytest.raises(aiohttp.ClientError):
        await fake.events(CHAT, messages=QUESTION)


async def test_slow_start_makes_the_next_step_long(fake: Fake):
    await fail(fake, Mode.SLOW_START, seconds=0.3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fake.post(CHAT, messages=QUESTION)


async def test_ignored_ids_let_the_message_decide(fake: Fake):
    await fail(fake, Mode.IGNORE_IDS)
    answer = await fake.post(CHAT, messages=QUESTION, **IDS)
    assert "Why is the sky blue?" in answer["choices"][0]["message"]["content"]
    assert (await fake.post(CHAT, messages=[], **IDS))["error"]["code"] == 400


async def test_refused_ids_are_a_400_on_both_apis(fake: Fake):
    await fail(fake, Mode.REFUSE_IDS)
    assert (await fake.post(CHAT, messages=QUESTION, **IDS))["error"]["code"] == 400
    assert (await fake.post("/v1/completions", prompt=[1, 2]))["error"]["code"] == 400
    assert "choices" in await fake.post("/v1/completions", prompt="text")


async def test_a_wrong_tokenizer_shows_in_tokenize_and_in_what_is_run(fake: Fake):
    right = (await fake.post("/tokenize", messages=QUESTION))["tokens"]
    await fail(fake, Mode.WRONG_TOKENIZER)
    wrong = (await fake.post("/tokenize", messages=QUESTION))["tokens"]
    run = (await fake.post(CHAT, messages=QUESTION, return_token_ids=True))["prompt_token_ids"]
    assert wrong == run != right


async def test_an_unknown_mode_is_refused_and_changes_nothing(fake: Fake):
    answer = await fake.post("/fake/fail", mode="melt")
    assert "hang_after_first" in answer["error"]["message"]
    assert "choices" in await fake.post(CHAT, messages=QUESTION)
