"""A `/v1/messages` request as the chat that vLLM 0.32 makes of it, so that it can be counted.

Follows vLLM's `anthropic/serving.py`. Only what the prompt's text depends on is translated; the
request itself goes to the backend as the client wrote it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenizer_pool.eligibility import MESSAGE_FIELD, TOOL_SHAPE, Ineligible, Unproved
from tokenizer_pool.fields import as_list, as_object, as_string

# A template that wants system messages first gets them merged there; whether it does is vLLM's
# own test of the template.
INLINE_SYSTEM: Final = Ineligible("a system message inside the conversation", exact=False)
# vLLM renders probes to find the effort that switches thinking off.
THINKING_OFF: Final = Ineligible("thinking is disabled by an effort of vLLM's choice", exact=False)
_BILLING_HEADER: Final = "x-anthropic-billing-header"
# A tuple: what a client calls a type may be anything, also what has no hash.
_SILENT: Final = ("redacted_thinking", "tool_reference")
_TOOL_FIELDS: Final = frozenset({"name", "description", "input_schema", "strict", "cache_control"})
_CHOICES: Final = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}


def as_chat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the chat request that has the same prompt. Raises Unproved."""
    chat: dict[str, Any] = {"messages": messages_of(values)}
    if (tools := values.get("tools")) is not None:
        chat["tools"] = [_tool(tool) for tool in as_list(tools)]
        choice = values.get("tool_choice") or {"type": "auto"}
        named = as_object(choice).get("type", "auto")
        chat["tool_choice"] = _CHOICES.get(as_string(named), "auto")
    if (arguments := values.get("chat_template_kwargs")) is not None:
        chat["chat_template_kwargs"] = arguments
    output = values.get("output_config")
    if isinstance(output, dict) and output.get("effort") is not None:
        chat["reasoning_effort"] = output["effort"]
    if _thinking_is_off(values):
        chat["reasoning_effort"] = "none"
    return chat


def doubt(values: Mapping[str, Any]) -> Ineligible | None:
    """Why the chat's prompt may yet differ from vLLM's."""
    if any(isinstance(m, dict) and m.get("role") == "system" for m in values["messages"]):
        return INLINE_SYSTEM
    return THINKING_OFF if _thinking_is_off(values) else None


def messages_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation. Raises Unproved."""
    messages: list[dict[str, Any]] = []
    system = _system_text(values.get("system") or "")
    if system:
        messages.append({"role": "system", "content": system})
    for message in as_list(values["messages"]):
        messages += _message(as_object(message))
    return messages


def _system_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [as_string(block.get("text")) for block in map(as_object, as_list(content))]
    return "".join(text for text in texts if not text.startswith(_BILLING_HEADER))


def _message(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of one message: a tool's results come before what else its bearer says."""
    role, content = message.get("role"), message.get("content")
    if role == "system":
        if text := _system_text(content):
            yield {"role": "system", "content": text}
        return
    if role not in ("user", "assistant"):
        raise Unproved(MESSAGE_FIELD)
    own: dict[str, Any] = {"role": role}
    if isinstance(content, str):
        own["content"] = content
    else:
        parts: list[dict[str, Any]] = []
        for block in map(as_object, as_list(content)):
            yield from _block(block, own, parts)
        if len(parts) == 1 and parts[0]["type"] == "text":
            own["content"] = parts[0]["text"]
        elif parts:
            own["content"] = parts
    if role != "user" or "content" in own:
        yield own


def _block(
    block: Mapping[str, Any], own: dict[str, Any], parts: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Add one block to its message; yields the messages that it makes beside that."""
    kind = block.get("type")
    if kind == "text":
        if text := as_string(block.get("text")):
            parts.append({"type": "text", "text": text})
    elif kind == "image":
        parts.append({"type": "image_url"})
    elif kind == "thinking":
        own["reasoning"] = own.get("reasoning", "") + as_string(block.get("thinking"))
    elif kind == "tool_use":
        function = {
            "name": block.get("name"),
            "arguments": json.dumps(block.get("input") or {}),
        }
        call = {"id": block.get("id"), "type": "function", "function": function}
        own.setdefault("tool_calls", []).append(call)
    elif kind == "tool_result" and own["role"] == "user":
        yield from _result(block)
    elif kind not in _SILENT:
        raise Unproved(MESSAGE_FIELD)


def _result(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = block.get("content")
    texts: list[str] = []
    images = 0
    if isinstance(content, str):
        texts = [content]
    elif content is not None:
        for item in map(as_object, as_list(content)):
            if item.get("type") == "text":
                texts.append(as_string(item.get("text", "")))
            elif item.get("type") == "image":
                images += 1
            else:
                raise Unproved(MESSAGE_FIELD)
    yield {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id") or "",
        "content": "\n".join(texts),
    }
    if images:
        yield {"role": "user", "content": [{"type": "image_url"}] * images}


def _tool(tool: Any) -> dict[str, Any]:
    tool = as_object(tool)
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or not tool.keys() <= _TOOL_FIELDS:
        raise Unproved(TOOL_SHAPE)
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": schema if "type" in schema else schema | {"type": "object"},
    }
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _thinking_is_off(values: Mapping[str, Any]) -> bool:
    thinking = values.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "disabled"
