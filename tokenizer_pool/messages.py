"""Chat messages as vLLM 0.32 hands them to a chat template.

The behaviour follows vLLM's request models (field order included, since a template may print a
whole object) and `renderers/chat_utils.py`. What does not fit the shapes proved equal raises
`Unproved`; what vLLM would refuse for certain raises InvalidRequest. Tools are in `tools`,
templates in `templates`.
"""

import json
import re
from typing import Any, Final

from tokenizer_pool.eligibility import MEDIA, MESSAGE_FIELD, Unproved
from tokenizer_pool.errors import InvalidRequest

_MESSAGE_FIELDS: Final = frozenset(
    [
        "role",
        "content",
        "name",
        "tool_call_id",
        "tool_calls",
        "reasoning",
        "reasoning_content",
        "refusal",
        "annotations",
        "audio",
        "function_call",
        "task",
    ]
)
_PART_FIELDS: Final = frozenset({"type", "text"})
# Where the parts are joined to one string, a mark for another vendor's cache has no effect.
_TEXT_PART_FIELDS: Final = _PART_FIELDS | {"cache_control"}
_PLAIN_ROLES: Final = ("user", "assistant")
_CALL_FIELDS: Final = frozenset({"id", "type", "function", "index"})
_CALL_FUNCTION_FIELDS: Final = frozenset({"name", "arguments"})
# Perhaps an integer that the fast template engine would print as a float.
_HUGE: Final = re.compile(r"\d{19}")
# A line that some coding clients put first; it differs in each request and vLLM drops it.
_BILLING_HEADER: Final = "x-anthropic-billing-header"


def _without_billing_header(part: str) -> str:
    return part.partition("\n")[2] if part.startswith(_BILLING_HEADER) else part


def _part_text(part: Any, allowed: frozenset[str]) -> str:
    # A bare string is a part too, but vLLM's request model takes it in some places only.
    if isinstance(part, dict) and part.get("type") == "text" and part.keys() <= allowed:
        text = part.get("text")
        if isinstance(text, str):
            return text
    raise Unproved(MESSAGE_FIELD if isinstance(part, str) else MEDIA)


def _texts(content: Any, role: str, index: int, allowed: frozenset[str]) -> list[str]:
    """The content's text parts, in order; parts may have the `allowed` fields."""
    if isinstance(content, str):
        parts = [content]
    elif isinstance(content, list):
        parts = [_part_text(part, allowed) for part in content]
    else:
        raise InvalidRequest(
            "content must be a string or a list of content parts",
            param=f"messages[{index}].content",
        )
    if role == "system":
        stripped = [_without_billing_header(part) for part in parts]
        # A part that was only the header disappears; a part that was empty before stays.
        parts = [new for old, new in zip(parts, stripped, strict=True) if new or not old]
    return parts


def _arguments(raw: Any) -> dict[str, Any]:
    """Tool call arguments as an object; what is not one becomes the empty object, as in vLLM."""
    if not isinstance(raw, str) or _HUGE.search(raw):
        raise Unproved(MESSAGE_FIELD)
    if not raw:
        return {}
    try:
        parsed = json.loads(raw)
    except json.JSONDecodeError:
        return {}
    except RecursionError:
        raise Unproved(MESSAGE_FIELD) from None
    return parsed if isinstance(parsed, dict) else {}


def _tool_call(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict) or not call.keys() <= _CALL_FIELDS:
        raise Unproved(MESSAGE_FIELD)
    function = call.get("function")
    if (
        not isinstance(function, dict)
        or function.keys() != _CALL_FUNCTION_FIELDS
        or not isinstance(function["name"], str)
        or not isinstance(call.get("id"), str)
        or call.get("type") != "function"
    ):
        raise Unproved(MESSAGE_FIELD)
    arguments = _arguments(function["arguments"])
    normal: dict[str, Any] = {
        "id": call["id"],
        "function": {"arguments": arguments, "name": function["name"]},
        "type": "function",
    }
    if "index" in call:
        normal["index"] = call["index"]
    return normal


def _assistant(message: dict[str, Any], normal: dict[str, Any]) -> None:
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise Unproved(MESSAGE_FIELD)
        if calls:
            normal["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise Unproved(MESSAGE_FIELD)
        normal["reasoning"] = reasoning
        normal["reasoning_content"] = reasoning


def _content(texts: list[str], role: str, *, parts: bool) -> Any:
    if parts and role != "tool":
        return [{"type": "text", "text": text} for text in texts]
    # With parts, vLLM joins a tool's texts again without dropping the empty ones.
    return "\n".join(texts if parts else filter(None, texts))


def _role(message: Any, index: int) -> str:
    if not isinstance(message, dict):
        raise InvalidRequest("each message must be an object", param=f"messages[{index}]")
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidRequest("role must be a string", param=f"messages[{index}].role")
    if not message.keys() <= _MESSAGE_FIELDS:
        raise Unproved(MESSAGE_FIELD)
    return role


def _extras(message: dict[str, Any], role: str) -> dict[str, Any]:
    """What a template may read of a message besides its role, content and calls."""
    extras: dict[str, Any] = {}
    if role == "tool" and "tool_call_id" in message:
        extras["tool_call_id"] = message["tool_call_id"]
        if not isinstance(message["tool_call_id"], str | None):
            raise Unproved(MESSAGE_FIELD)
    for name in ("name", "task"):
        if name in message:
            extras[name] = message[name]
            if not isinstance(message[name], str):
                raise Unproved(MESSAGE_FIELD)
    if role == "developer":
        extras["tools"] = None
    return extras


def _message(message: Any, index: int, *, parts: bool) -> dict[str, Any]:
    role = _role(message, index)
    content = message.get("content")
    if content is None and (role == "assistant" or "content" not in message):
        texts = []
    else:
        texts = _texts(content, role, index, _PART_FIELDS if parts else _TEXT_PART_FIELDS)
    normal: dict[str, Any] = {"role": role, "content": _content(texts, role, parts=parts)}
    if role == "assistant":
        _assistant(message, normal)
    if len(message) > 2 or role == "developer":
        normal |= _extras(message, role)
    return normal


def normalise(messages: list[Any], *, parts: bool) -> list[dict[str, Any]]:
    """The conversation for a template that wants string content, or lists of parts.

    Raises InvalidRequest for what vLLM refuses, Unproved for what we do not know to be equal.
    """
    if parts:
        return [_message(message, index, parts=True) for index, message in enumerate(messages)]
    normal = []
    for index, message in enumerate(messages):
        # Nearly every message there is: a role that needs nothing done, and a string.
        if (
            type(message) is dict
            and len(message) == 2
            and type(content := message.get("content")) is str
            and (
                (role := message.get("role")) in _PLAIN_ROLES
                or (role == "system" and not content.startswith(_BILLING_HEADER))
            )
        ):
            normal.append({"role": role, "content": content})
        else:
            normal.append(_message(message, index, parts=False))
    return normal


def _as_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return str(content)


def developer_as_system(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For a template that knows no developer role: system messages, merged into one at the front.

    They are merged only when one of them is not the first message, and empty ones vanish then.
    """
    if not any(message["role"] == "developer" for message in conversation):
        return conversation
    converted = [
        {key: value for key, value in message.items() if key != "tools"} | {"role": "system"}
        if message["role"] == "developer"
        else message
        for message in conversation
    ]
    if all(message["role"] != "system" for message in converted[1:]):
        return converted
    texts = [_as_text(m["content"]) for m in converted if m["role"] == "system"]
    merged = {"role": "system", "content": "\n\n".join(filter(None, texts))}
    return [merged, *(message for message in converted if message["role"] != "system")]


def estimate(messages: list[Any]) -> int:
    """A guess of the tokens in messages that we cannot render: a quarter of their text's bytes."""
    size = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                size += len(text.encode("utf-8", "ignore"))
        size += 16
    return size // 4 + 1
