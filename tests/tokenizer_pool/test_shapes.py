"""Requests of the APIs whose prompts are counted only: what is counted, and how surely."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tokenizer_pool.conftest import MakePool
from tokenizer_pool import shapes
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.model import Model
from tokenizer_pool.types import Kind, TokenizedPrompt

_NAMES = (
    *("model", "messages", "input", "role", "content", "type", "text", "tools", "tool_choice"),
    *("system", "query", "documents", "thinking", "reasoning", "effort", "output_config", "name"),
    *("tool_calls", "function", "arguments", "output", "status", "summary", "input_schema"),
)
USER = {"role": "user", "content": "What is a forebay?"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
TOOL = {"name": "f", "description": "does", "parameters": {"type": "object"}}


def prepared(model: Model, kind: Kind, **values: Any) -> TokenizedPrompt:
    document = shapes.parse(json.dumps({"model": "m"} | values).encode(), kind)
    return shapes.prepare(model, kind, document)


def chat_tokens(model: Model, messages: list[Any], **values: Any) -> int:
    return prepared(model, Kind.CHAT, messages=messages, **values).prompt_tokens


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ({"input": "What is a forebay?"}, [USER]),
        (
            {"input": "What is a forebay?", "instructions": "Be brief."},
            [{"role": "system", "content": "Be brief."}, USER],
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
            [{"role": "user", "content": "Hi"}],
        ),
        (
            {
                "input": [
                    USER,
                    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "A pool."}]},
                    {"role": "assistant", "content": "Yes."},
                    USER,
                ]
            },
            [
                USER,
                {"role": "assistant", "reasoning": "hm", "content": "A pool."},
                {"role": "assistant", "content": "Yes."},
                USER,
            ],
        ),
        (
            {"input": [USER, CALL, RESULT]},
            [
                USER,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "42"},
            ],
        ),
    ],
)
def test_a_response_counts_as_its_chat(
    model: Model, values: dict[str, Any], messages: list[Any]
) -> None:
    prompt = prepared(model, Kind.RESPONSES, **values, max_output_tokens=7)
    assert prompt.prompt_tokens == chat_tokens(model, messages)
    assert prompt.exact
    assert prompt.max_tokens == 7
    assert not prompt.ids
    assert orjson.loads(prompt.text) == {"model": "m", **values, "max_output_tokens": 7}


def test_a_responses_tools_count_as_the_chats(model: Model) -> None:
    prompt = prepared(model, Kind.RESPONSES, input="Hi", tools=[{"type": "function", **TOOL}])
    tools = [{"type": "function", "function": TOOL}]
    assert prompt.prompt_tokens == chat_tokens(
        model, [{"role": "user", "content": "Hi"}], tools=tools
    )
    assert prompt.exact


@pytest.mark.parametrize(
    "values",
    [
        {"input": "Hi", "previous_response_id": "resp_1"},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": "Hi", "tools": [{"type": "web_search"}]},
        {"input": [{**CALL, "namespace": "n"}]},
        {"input": [{"role": "assistant", "content": "Go", "status": "incomplete"}]},
        {"input": 5},
        {},
    ],
)
def test_what_is_not_known_of_a_response_is_estimated(model: Model, values: dict[str, Any]) -> None:
    prompt = prepared(model, Kind.RESPONSES, **values)
    assert not prompt.exact
    assert prompt.prompt_tokens > 0
    assert prompt.previous == values.get("previous_response_id")


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ({"messages": [USER]}, [USER]),
        (
            {"messages": [USER], "system": [{"type": "text", "text": "Be"}, {"text": " brief."}]},
            [{"role": "system", "content": "Be brief."}, USER],
        ),
        (
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "hm", "signature": "s"},
                            {"type": "text", "text": "Let me see."},
                            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "c1", "content": "42"},
                            {"type": "text", "text": "And?"},
                        ],
                    },
                ]
            },
            [
                USER,
                {
                    "role": "assistant",
                    "reasoning": "hm",
                    "content": "Let me see.",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "42"},
                {"role": "user", "content": "And?"},
            ],
        ),
    ],
)
def test_anthropics_messages_count_as_their_chat(
    model: Model, values: dict[str, Any], messages: list[Any]
) -> None:
    prompt = prepared(model, Kind.MESSAGES, **values, max_tokens=5, stream=True)
    assert prompt.prompt_tokens == chat_tokens(model, messages)
    assert (prompt.exact, prompt.max_tokens, prompt.stream) == (True, 5, True)


def test_anthropics_tools_count_as_the_chats(model: Model) -> None:
    tool = {"name": "f", "description": "does", "input_schema": {"properties": {}}}
    prompt = prepared(model, Kind.MESSAGES, messages=[USER], tools=[tool])
    function = TOOL | {"parameters": {"properties": {}, "type": "object"}}
    tools = [{"type": "function", "function": function}]
    assert prompt.prompt_tokens == chat_tokens(model, [USER], tools=tools)
    assert prompt.exact


@pytest.mark.parametrize(
    ("values", "media"),
    [
        ({"messages": [{"role": "system", "content": "late"}, USER]}, ()),
        ({"messages": [USER], "thinking": {"type": "disabled"}}, ()),
        ({"messages": [{"role": "user", "content": [{"type": "novel"}]}]}, ()),
        ({"messages": [USER], "tools": [{"type": "web_search_20250305", "name": "w"}]}, ()),
        ({"messages": []}, ()),
        ({"messages": [{"role": "critic", "content": "Hm"}]}, ()),
        ({"messages": "Hi"}, ()),
        ({}, ()),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "data": "AA=="}},
                            {"type": "tool_result", "content": [{"type": "image"}]},
                            {"type": "text", "text": "What is on them?"},
                        ],
                    }
                ]
            },
            (("image", 2),),
        ),
    ],
)
def test_what_is_not_known_of_anthropics_messages_is_estimated(
    model: Model, values: dict[str, Any], media: Any
) -> None:
    prompt = prepared(model, Kind.MESSAGES, **values)
    assert not prompt.exact
    assert prompt.prompt_tokens > 0
    assert prompt.media == media


def test_embeddings_count_every_text_and_know_the_longest(model: Model) -> None:
    alone = [
        prepared(model, Kind.COMPLETION, prompt=text).prompt_tokens for text in ("one", "a b c d")
    ]
    both = prepared(model, Kind.EMBEDDING, input=["one", "a b c d"])
    assert both.prompt_tokens == sum(alone)
    assert both.longest == max(alone)
    assert both.exact
    ids = prepared(model, Kind.EMBEDDING, input=[[1, 2, 3], [4]])
    assert (ids.prompt_tokens, ids.longest, ids.exact) == (4, 3, True)
    assert prepared(model, Kind.EMBEDDING, input=[1, 2, 3]).prompt_tokens == 3
    cut = prepared(model, Kind.EMBEDDING, input="a b c d", truncate_prompt_tokens=2)
    assert cut.prompt_tokens == 2


def test_embedded_conversations_have_no_generation_prompt(model: Model) -> None:
    given = prepared(model, Kind.EMBEDDING, messages=[USER], encoding_format="float")
    chat = chat_tokens(model, [USER], add_generation_prompt=False)
    assert (given.prompt_tokens, given.exact) == (chat, True)
    several = prepared(model, Kind.EMBEDDING, input=[[USER], [USER]])
    assert several.prompt_tokens == 2 * chat


@pytest.mark.parametrize("given", [None, 5, [], [None], [["a"]], [{"role": 1}, "x"]])
def test_an_odd_embedding_request_is_counted_by_its_size(model: Model, given: Any) -> None:
    prompt = prepared(model, Kind.EMBEDDING, input=given)
    assert not prompt.exact
    assert prompt.prompt_tokens > 0


def test_a_rerank_counts_its_query_with_each_document(model: Model) -> None:
    def tokens(text: str) -> int:
        return model.count_text(text, special=False)

    prompt = prepared(model, Kind.SCORE, query="what", documents=["a b", "c d e f"])
    assert prompt.prompt_tokens == 2 * tokens("what") + tokens("a b") + tokens("c d e f")
    assert prompt.longest == tokens("what") + tokens("c d e f")
    assert not prompt.exact
    pairs = prepared(model, Kind.SCORE, text_1=["x", "y z"], text_2=["u", "v"])
    assert pairs.prompt_tokens == sum(map(tokens, ("x", "y z", "u", "v")))
    assert not prepared(model, Kind.SCORE, query={"content": []}, documents=[]).exact


def test_several_completions_know_the_longest(model: Model) -> None:
    prompt = prepared(model, Kind.COMPLETION, prompt=[[1, 2, 3], [4, 5]])
    assert (prompt.prompt_tokens, prompt.longest) == (5, 3)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}, "audio"),
        ({"type": "video_url", "video_url": {"url": "http://v"}}, "video"),
        ({"image_url": {"url": "http://i"}}, "image"),
    ],
)
def test_the_media_of_a_chat_are_told_by_kind(model: Model, part: Any, kind: str) -> None:
    content = [{"type": "text", "text": "What is this?"}, part, part]
    prompt = prepared(model, Kind.CHAT, messages=[{"role": "user", "content": content}])
    assert prompt.media == ((kind, 2),)
    assert not prompt.exact
    assert orjson.loads(prompt.text)["messages"][0]["content"] == content


def test_what_a_client_may_not_say_is_taken_out_of_every_kind_of_request(model: Model) -> None:
    for kind in shapes.SHAPES:
        prompt = prepared(model, kind, input="Hi", request_id="mine", priority=-1)
        assert orjson.loads(prompt.text) == {"model": "m", "input": "Hi"}


def test_a_huge_number_stays_as_it_is(model: Model) -> None:
    body = b'{"model":"m","input":"Hi","seed":123456789012345678901234567890}'
    document = shapes.parse(body, Kind.RESPONSES)
    assert b"123456789012345678901234567890" in shapes.prepare(model, Kind.RESPONSES, document).text


_JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(sorted(shapes.SHAPES, key=lambda kind: kind.value)),
    st.dictionaries(st.sampled_from(_NAMES), _JSON, max_size=5),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_object_is_counted_somehow(model: Model, kind: Kind, values: dict[str, Any]) -> None:
    values.pop("model", None)
    prompt = prepared(model, kind, **values)
    assert prompt.prompt_tokens >= 0
    assert prompt.text


async def test_a_limit_beyond_all_numbers_is_as_good_as_none(make_pool: MakePool) -> None:
    far = await make_pool(inline_max_bytes=0)
    for kind, limit in ((Kind.CHAT, "max_tokens"), (Kind.MESSAGES, "max_tokens")):
        body = orjson.dumps({"model": "m", "messages": [USER]})[:-1]
        prompt = await far.prepare(kind, b'%b,"%b":%d}' % (body, limit.encode(), 10**40))
        assert prompt.max_tokens == 2**31 - 1
        assert b"1%b" % (b"0" * 40) in prompt.text


async def test_an_alias_travels_under_the_models_own_name(make_pool: MakePool) -> None:
    near, far = await make_pool(), await make_pool(inline_max_bytes=0)
    body = json.dumps({"model": "gpt", "messages": [USER], "seed": 10**30}).encode()
    for pool in (near, far):
        with pytest.raises(InvalidRequest, match="does not exist"):
            await pool.prepare(Kind.CHAT, body)
        pool.call({"gpt": "m"})
        prompt = await pool.prepare(Kind.CHAT, body)
        assert prompt.model == "m"
        assert orjson.loads(prompt.text)["model"] == "m"
        assert (await pool.tokenize(b'{"model":"gpt","prompt":"a"}')).model == "m"


async def test_media_have_a_lane_of_their_own(make_pool: MakePool) -> None:
    pool = await make_pool()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [picture]}]})
    assert [lane.name for lane in pool.report().lanes] == ["long"]
    prompt = await pool.prepare(Kind.CHAT, body)
    assert prompt.media == (("image", 1),)
    assert {lane.name: lane.done for lane in pool.report().lanes} == {"long": 0, "media": 1}
    assert orjson.loads(prompt.text)["messages"][0]["content"] == [picture]
