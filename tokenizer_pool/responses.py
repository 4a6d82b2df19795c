"""A `/v1/responses` request as the chat that vLLM 0.32 makes of it, so that it can be counted.

Follows vLLM's `openai/responses/utils.py`: instructions become a system message, items become
messages, and items that belong to one turn of the assistant are merged. Only what the prompt's
text depends on is translated; the request itself goes to the backend as the client wrote it.
"""

from collections.abc import Mapping
from typing import Any, Final

from tokenizer_pool.eligibility import MESSAGE_FIELD, TOOL_SHAPE, Ineligible, Unproved
from tokenizer_pool.fields import as_list, as_string

HISTORY: Final = Ineligible("the backend knows the beginning of the conversation", exact=False)
# A tuple: what a client calls a type may be anything, also what has no hash.
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_TOOL_FIELDS: Final = ("name", "description", "parameters", "strict")
_UNPROVED_FIELDS: Final = ("prompt", "previous_input_messages", "media_io_kwargs")
_PARTIAL: Final = ("in_progress", "incomplete")


def as_chat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the chat request that has the same prompt. Raises Unproved."""
    if any(values.get(name) is not None for name in _UNPROVED_FIELDS):
        raise Unproved(MESSAGE_FIELD)
    chat: dict[str, Any] = {"messages": messages_of(values)}
    tools = values.get("tools")
    if tools:
        chat["tools"] = [_tool(tool) for tool in as_list(tools)]
        chat["tool_choice"] = values.get("tool_choice", "auto")
    if (arguments := values.get("chat_template_kwargs")) is not None:
        chat["chat_template_kwargs"] = arguments
    reasoning = values.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    return chat


def messages_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation, less what the backend may remember of it. Raises Unproved."""
    messages: list[dict[str, Any]] = []
    instructions = values.get("instructions")
    if instructions:
        messages.append({"role": "system", "content": as_string(instructions)})
    given = values.get("input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    own: list[dict[str, Any]] = []
    for item in as_list(given):
        _append(own, item)
    return messages + own


def _append(messages: list[dict[str, Any]], item: Any) -> None:
    """Add one item, to the assistant's turn that is being told where it belongs to that."""
    if not isinstance(item, dict) or item.get("status") in _PARTIAL:
        raise Unproved(MESSAGE_FIELD)
    turn = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    kind = item.get("type", "message")
    if kind == "function_call":
        calls = (turn or _begin(messages)).setdefault("tool_calls", [])
        calls.append(_call(item))
    elif kind == "function_call_output":
        content, call_id = as_string(item.get("output")), item.get("call_id")
        messages.append({"role": "tool", "content": content, "tool_call_id": call_id})
    elif kind == "reasoning":
        _tell(messages, turn, "reasoning", _reasoning(item))
    elif kind == "message" and item.get("role") == "assistant":
        _tell(messages, turn, "content", _said(item.get("content")))
    elif kind == "message":
        messages.append({"role": item.get("role"), "content": _parts(item.get("content"))})
    else:
        raise Unproved(MESSAGE_FIELD)


def _begin(messages: list[dict[str, Any]]) -> dict[str, Any]:
    messages.append({"role": "assistant"})
    return messages[-1]


def _tell(
    messages: list[dict[str, Any]], turn: dict[str, Any] | None, name: str, text: str
) -> None:
    """What the assistant's turn says already is not said over: a new turn begins."""
    if turn is None or turn.get(name) is not None:
        turn = _begin(messages)
    turn[name] = text


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    if item.get("namespace") is not None:
        raise Unproved(MESSAGE_FIELD)
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _reasoning(item: Mapping[str, Any]) -> str:
    if item.get("encrypted_content"):
        raise Unproved(MESSAGE_FIELD)
    told = item.get("content") or item.get("summary") or [{"text": ""}]
    return as_string(_first(told).get("text"))


def _said(content: Any) -> str:
    """The assistant's words: of several parts vLLM takes the first."""
    return content if isinstance(content, str) else as_string(_first(content).get("text"))


def _parts(content: Any) -> Any:
    """A message's content, with text parts under the one name that chats have for them."""
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.get("text")}
        if isinstance(part, dict) and part.get("type") in _TEXT_PARTS
        else part
        for part in as_list(content)
    ]


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise Unproved(TOOL_SHAPE)
    if tool.keys() - {"type", *_TOOL_FIELDS}:
        raise Unproved(TOOL_SHAPE)
    return {"type": "function", "function": {n: tool[n] for n in _TOOL_FIELDS if n in tool}}


def _first(content: Any) -> dict[str, Any]:
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return content[0]
    raise Unproved(MESSAGE_FIELD)
