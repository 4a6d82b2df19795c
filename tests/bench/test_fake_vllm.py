"""The simulated server over real sockets: vLLM's API, and ids that decide the answer."""

import asyncio
import time
from itertools import pairwise

import openai
import pytest
import uvloop

from bench.engine import EngineSpec
from bench.fake_vllm import TOKENIZER
from tests.bench.conftest import Fake, make_fake
from tests.bench.waiting import reaches

CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


async def ids_of(fake: Fake, **body) -> list[int]:
    return (await fake.post("/tokenize", **body))["tokens"]


async def test_a_streamed_chat_has_vllms_events(fake: Fake):
    options = {"include_usage": True}
    first, *deltas, usage, done = await fake.events(
        CHAT, messages=QUESTION, max_tokens=5, stream_options=options
    )
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["object"] == "chat.completion.chunk"
    assert [d["choices"][0]["finish_reason"] for d in deltas] == [None] * 4 + ["length"]
    assert {d["id"] for d in deltas} == {first["id"]}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    assert done == "[DONE]"


async def test_streamed_or_not_the_answer_is_the_same(fake: Fake):
    events = await fake.events(CHAT, messages=QUESTION)
    whole = await fake.post(CHAT, messages=QUESTION)
    streamed = "".join(e["choices"][0]["delta"]["content"] for e in events[:-1])
    assert streamed == whole["choices"][0]["message"]["content"]
    assert streamed.startswith("You wrote “Why is the sky blue?”")
    assert whole["choices"][0]["finish_reason"] == "stop"


async def test_a_streamed_completion_ends_with_usage_and_done(fake: Fake):
    events = await fake.events(
        "/v1/completions", prompt="Once upon", max_tokens=3, stream_options={"include_usage": True}
    )
    assert [e["object"] for e in events[:-1]] == ["text_completion"] * 4
    assert events[-2]["usage"] == {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3}


async def test_the_engine_goes_on_while_a_long_text_is_tokenized():
    """In vLLM, too, the renderer is not the engine."""
    text = "The miller opened the sluice. " * 30_000
    body = {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": 30_000}
    async with (
        make_fake(engine=EngineSpec(step_base=0.002)) as fake,
        fake.http.post("/v1/completions", json=body) as response,
    ):
        began = time.perf_counter()
        refusing = asyncio.get_running_loop().create_task(fake.post("/v1/completions", prompt=text))
        came = [began]
        while not refusing.done():
            await response.content.readline()
            came.append(time.perf_counter())
        assert (await refusing)["error"]["code"] == 400
    longest = max(later - earlier for earlier, later in pairwise(came))
    assert longest < 0.5 * (came[-1] - began)


async def test_openais_client_reads_it(fake: Fake):
    async with openai.AsyncOpenAI(base_url=fake.server.url + "/v1", api_key="x") as client:
        model = (await client.models.list()).data[0]
        chat = await client.chat.completions.create(
            model=model.id, messages=QUESTION, n=2, max_tokens=4
        )
        assert [choice.index for choice in chat.choices] == [0, 1]
        assert chat.usage is not None
        assert chat.usage.completion_tokens == 8
        stream = await client.completions.create(model=model.id, prompt=["a", "b"], stream=True)
        assert {c.index async for chunk in stream for c in chunk.choices} == {0, 1}
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.chat.completions.create(model="other", messages=QUESTION)
        with pytest.raises(openai.BadRequestError, match="maximum context length is 32768"):
            await client.completions.create(model=model.id, prompt=[5] * 32769)


async def test_ids_decide_the_answer_and_the_message_does_not(fake: Fake):
    other = await ids_of(fake, messages=[{"role": "user", "content": "Who built the mill?"}])
    for messages in (QUESTION, []):
        answer = await fake.post(
            CHAT,
            messages=messages,
            kv_transfer_params={"prompt_token_ids": other},
            return_token_ids=True,
        )
        assert answer["prompt_token_ids"] == other
        assert answer["usage"]["prompt_tokens"] == len(other)
        assert "Who built the mill?" in answer["choices"][0]["message"]["content"]


async def test_a_completion_takes_text_or_ids(fake: Fake):
    ids = await ids_of(fake, prompt="The river rises", add_special_tokens=True)
    by_text, by_ids = [
        await fake.post("/v1/completions", prompt=prompt, return_token_ids=True, max_tokens=9)
        for prompt in ("The river rises", ids)
    ]
    assert by_text["choices"] == by_ids["choices"]
    assert by_text["choices"][0]["prompt_token_ids"] == ids


async def test_the_ids_it_reports_are_those_that_tokenize_gives(fake: Fake):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
        {"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
        {"role": "assistant", "content": "done", "reasoning": "why", "tool_calls": [
            {"id": "2", "type": "function", "function": {"name": "bad", "arguments": "{no"}}
        ]},
        {"role": "user", "name": "Ann", "content": ["plain", {"type": "refusal", "refusal": "no"}]},
    ]  # fmt: skip
    body = {"messages": messages, "tools": TOOLS}
    ids = await ids_of(fake, **body)
    events = await fake.events(CHAT, **body, return_token_ids=True, max_tokens=2)
    assert events[0]["prompt_token_ids"] == ids
    assert [len(e["choices"][0]["token_ids"]) for e in events[1:-1]] == [1, 1]
    text = (await fake.post("/detokenize", tokens=ids))["prompt"]
    assert '{"name": "look", "description": null, "parameters": {"type": "object"}}' in text
    assert '<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>' in text
    assert 'done\n<tool_call>\n{"name": "bad", "arguments": {}}' in text
    assert text.endswith("<|im_start|>user\nplain\nno<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": QUESTION, "max_tokens": 0}, "max_tokens"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages"),
        ({"messages": QUESTION, "tools": [{"type": "function"}]}, "tools"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "tool_calls"),
        ({"messages": QUESTION, "max_tokens": "many"}, "max_tokens"),
        ({"messages": QUESTION, "continue_final_message": True}, "messages"),
        (
            {"messages": [], "kv_transfer_params": {"prompt_token_ids": [1, -1]}},
            "kv_transfer_params.prompt_token_ids",
        ),
        (
            {"messages": [], "kv_transfer_params": {"prompt_token_ids": [8192]}},
            "kv_transfer_params.prompt_token_ids",
        ),
    ],
)
async def test_what_it_cannot_serve_is_a_400_in_vllms_shape(fake: Fake, body, param):
    error = (await fake.post(CHAT, **body))["error"]
    assert (error["code"], error["type"], error["param"]) == (400, "BadRequestError", param)


async def test_a_body_that_is_not_json_is_a_400(fake: Fake):
    async with fake.http.post(CHAT, data=b"{") as response:
        assert response.status == 400


async def test_models_name_the_tokenizer_and_the_context(fake: Fake):
    async with fake.http.get("/v1/models") as response:
        card = (await response.json())["data"][0]
    assert (card["root"], card["max_model_len"]) == (str(TOKENIZER), 32768)
    async with fake.http.get("/version") as response:
        assert (await response.json())["version"].startswith("0.32")
    async with fake.http.get("/health") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_metrics_have_vllms_names_and_count(fake: Fake):
    await fake.post("/v1/completions", prompt=[7] * 40, max_tokens=3)
    async with fake.http.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    values = {line.split("{")[0]: float(line.split()[-1]) for line in lines if line[0] != "#"}
    assert values["vllm:prompt_tokens_total"] == 40
    assert values["vllm:generation_tokens_total"] == 3
    assert values["vllm:num_requests_running"] == 0
    assert {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= values.keys()
    assert 'vllm:request_success_total{engine="0",model_name="forebay-demo"' in "\n".join(lines)


async def test_a_prompt_takes_the_time_that_the_model_says():
    async with make_fake(engine=EngineSpec(prefill_per_token=1e-3)) as fake:
        began = time.monotonic()
        await fake.post("/v1/completions", prompt=[7] * 200, max_tokens=1)
        assert time.monotonic() - began >= 0.2


async def test_a_short_prompt_waits_for_the_long_one_before_it():
    async with make_fake(engine=EngineSpec(max_num_batched_tokens=64)) as fake:
        ended: list[str] = []

        async def ask(name: str, tokens: int) -> None:
            await fake.post("/v1/completions", prompt=[7] * tokens, max_tokens=1)
            ended.append(name)

        long = asyncio.ensure_future(ask("long", 2000))  # noqa: TID251
        await reaches(lambda: fake.server.app.engine.running == 1)
        await ask("short", 10)
        await long
        assert ended == ["long", "short"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_its_sequence(stream: bool):
    async with make_fake(engine=EngineSpec(decode_per_seq=1e-3)) as fake:
        app = fake.server.app
        body = {"messages": QUESTION, "stream": stream, "ignore_eos": True, "max_tokens": 30_000}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), fake.http.post(CHAT, json=body) as response:
                await response.read()
        await reaches(lambda: app.engine.running == 0)
        assert app.finished["abort"] == 1
        assert 0 < app.engine.generated_tokens < 5_000


async def test_an_answer_with_ignore_eos_has_every_token_that_was_asked_for(fake: Fake):
    answer = await fake.post(CHAT, messages=QUESTION, ignore_eos=True, max_tokens=400)
    assert answer["usage"]["completion_tokens"] == 400
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_full_queue_is_a_503_without_retry_after():
    async with (
        make_fake(max_num_queued_reqs=0) as fake,
        fake.http.post(CHAT, json={"messages": QUESTION}) as response,
    ):
        assert response.status == 503
        assert "Retry-After" not in response.headers


@pytest.mark.parametrize(("caching", "cached"), [(True, 144), (False, 0)])
async def test_the_prefix_cache_spares_a_repeated_prompt(caching: bool, cached: int):
    async with make_fake(prefix_caching=caching) as fake:
        for _ in range(2):
            await fake.post("/v1/completions", prompt=list(range(160)), max_tokens=1)
        assert fake.server.app.engine.cached_tokens == cached


def test_it_runs_on_uvloop_too():
    async def ask_several() -> list[int]:
        async with make_fake() as fake:
            asks = [fake.post(CHAT, messages=QUESTION, max_tokens=3) for _ in range(20)]
            answers = await asyncio.gather(*asks)
        return [answer["usage"]["completion_tokens"] for answer in answers]

    assert uvloop.run(ask_several()) == [3] * 20


async def test_what_it_has_seen_can_be_asked(fake: Fake):
    await fake.post(CHAT, messages=QUESTION, user="me")
    async with fake.http.get("/fake/seen") as response:
        seen = await response.json()
    assert (seen["received"], seen["finished"]["stop"], seen["last"]["user"]) == (1, 1, "me")
