"""Messages become what vLLM hands to a template; nothing a client sends can crash us."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenizer_pool.eligibility import Unproved
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.messages import developer_as_system, estimate, normalise
from tokenizer_pool.tools import Tool, ToolMemo, normalise_tools

TEXT = {"type": "text"}


def one(message: dict[str, Any], *, parts: bool = False) -> dict[str, Any]:
    (normal,) = normalise([message], parts=parts)
    return normal


def call(arguments: Any, **extra: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"id": "1", "type": "function", "function": function, **extra}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": ""}], "a"),
        ([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], "a"),
    ],
)
def test_parts_are_joined_by_a_newline_and_empty_ones_dropped(content: Any, text: str) -> None:
    assert one({"role": "user", "content": content}) == {"role": "user", "content": text}


def test_a_template_that_wants_parts_gets_parts_with_empty_ones_kept() -> None:
    message = {"role": "user", "content": "a"}
    assert one(message, parts=True)["content"] == [{"type": "text", "text": "a"}]
    empty = {"role": "user", "content": [{"type": "text", "text": ""}]}
    assert one(empty, parts=True)["content"] == [{"type": "text", "text": ""}]


def test_a_tools_result_is_a_string_even_where_parts_are_wanted() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]
    message = {"role": "tool", "content": parts, "tool_call_id": "1"}
    want = {"role": "tool", "content": "a\n", "tool_call_id": "1"}
    assert one(message, parts=True) == want
    assert one(message)["content"] == "a"


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1.0}', {"a": 1.0}),
        ("", {}),
        ("nonsense", {}),
        ("[1]", {}),
        ("null", {}),
        ('{"n": 123456789012345678}', {"n": 123456789012345678}),
    ],
)
def test_tool_call_arguments_become_an_object(arguments: str, parsed: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call(arguments, index=0)]}
    normal = one(message)
    assert normal["content"] == ""
    (tool_call,) = normal["tool_calls"]
    # The order is that of vLLM's request model: a template may print the whole object.
    assert list(tool_call) == ["id", "function", "type", "index"]
    assert tool_call["function"] == {"arguments": parsed, "name": "f"}


def test_an_empty_list_of_tool_calls_is_no_tool_call() -> None:
    assert "tool_calls" not in one({"role": "assistant", "content": "x", "tool_calls": []})


def test_reasoning_has_two_names_and_the_newer_wins() -> None:
    old = one({"role": "assistant", "content": "x", "reasoning_content": "a"})
    assert (old["reasoning"], old["reasoning_content"]) == ("a", "a")
    both = one({"role": "assistant", "content": "x", "reasoning_content": "a", "reasoning": "b"})
    assert (both["reasoning"], both["reasoning_content"]) == ("b", "b")


def test_a_billing_header_in_a_system_message_is_dropped() -> None:
    header = "x-anthropic-billing-header: cch=1"
    assert one({"role": "system", "content": f"{header}\nrest"})["content"] == "rest"
    assert one({"role": "system", "content": header}, parts=True)["content"] == []
    assert one({"role": "user", "content": f"{header}\nx"})["content"] == f"{header}\nx"


def test_names_and_tasks_are_kept() -> None:
    message = {"role": "user", "content": "x", "name": "Zoë", "task": "t"}
    assert one(message) == message


def test_a_developer_is_a_system_for_templates_that_know_none() -> None:
    user = {"role": "user", "content": "u"}
    developer = one({"role": "developer", "content": "d"})
    assert developer_as_system([developer, user]) == [{"role": "system", "content": "d"}, user]
    system = {"role": "system", "content": "s"}
    merged = {"role": "system", "content": "s\n\nd"}
    assert developer_as_system([system, user, developer]) == [merged, user]
    # Without a developer nothing moves, wherever the system messages are.
    assert developer_as_system([user, system]) == [user, system]


def test_tools_look_as_vllm_dumps_them() -> None:
    tools = [
        {"function": {"name": "a"}},
        {"type": "function", "function": {"strict": True, "parameters": {"z": 1}, "name": "b"}},
    ]
    normal = normalise_tools(tools)
    assert normal is not None
    assert [list(tool["function"].items()) for tool in normal] == [
        [("name", "a"), ("description", None), ("parameters", None)],
        [("name", "b"), ("description", None), ("parameters", {"z": 1}), ("strict", True)],
    ]
    assert [list(tool) for tool in normal] == [["type", "function"]] * 2
    assert normalise_tools(None) is None


def test_tools_that_come_again_are_not_made_again() -> None:
    memo = ToolMemo()

    def kept(tools: list[dict[str, Any]]) -> list[Tool] | None:
        return memo.normalise(tools, orjson.dumps(tools))

    def tools(number: int) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": f"é{number}"}}]

    first = kept(tools(0))
    assert first == normalise_tools(tools(0))
    assert first is not None
    assert [json.loads(tool.json) for tool in first] == first
    assert kept(tools(0)) is first
    for number in range(1, 65):
        kept(tools(number))
    assert kept(tools(0)) is not first
    # What is very large is not kept.
    large = [{"type": "function", "function": {"name": "f", "description": "x" * 70_000}}]
    assert kept(large) is not kept(large)
    with pytest.raises(Unproved):
        kept([{"type": "function", "function": {"name": "f"}, "extra": 1}])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": ["bare string"]},
        {"role": "user", "content": [{"type": "text", "text": "a", "uuid": "1"}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": "x", "author": "harmony"},
        {"role": "user", "content": "x", "name": None},
        {"role": "assistant", "content": "x", "tool_calls": {"0": call("{}")}},
        {"role": "assistant", "content": "x", "tool_calls": [call({"a": 1})]},
        {"role": "assistant", "content": "x", "tool_calls": [call("{}", extra=1)]},
        {"role": "assistant", "content": "x", "tool_calls": [call('{"a":' * 5000)]},
        {"role": "assistant", "content": "x", "tool_calls": [call('{"n": 99999999999999999999}')]},
        {"role": "assistant", "content": "x", "reasoning": 5},
        {"role": "tool", "content": "x", "tool_call_id": 5},
        {"role": "developer", "content": "x", "tools": []},
    ],
)
def test_what_is_not_proved_is_not_guessed(message: dict[str, Any]) -> None:
    with pytest.raises(Unproved):
        one(message)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("text", "messages[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
    ],
)
def test_what_vllm_refuses_is_refused(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        one(message)
    assert refused.value.param == param


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["role", "content", "name", "tool_calls", "reasoning", "tool_call_id", "text", "type"]
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer"])
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4)
    | st.fixed_dictionaries({"role": ROLES, "content": JSON, "tool_calls": JSON})
    | JSON,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(messages=MESSAGES, parts=st.booleans())
def test_no_shape_of_messages_crashes(messages: list[Any], parts: bool) -> None:
    try:
        normal = normalise(messages, parts=parts)
    except (InvalidRequest, Unproved):
        normal = []
    for message in developer_as_system(normal):
        assert isinstance(message["role"], str)
        wanted = list if parts and message["role"] != "tool" else str
        assert isinstance(message["content"], (wanted, str))
    assert estimate(messages) > 0


@settings(max_examples=40, deadline=None)
@given(tools=JSON | st.lists(JSON))
def test_no_shape_of_tools_crashes(tools: Any) -> None:
    try:
        normal = normalise_tools(tools)
    except (InvalidRequest, Unproved):
        return
    assert normal is None or all(tool["type"] == "function" for tool in normal)
