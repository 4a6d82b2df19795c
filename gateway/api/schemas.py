"""JSON schemas of what clients send and get, as far as the gateway itself reads or writes it.

vLLM reads many more fields than these; which ones and what they may be is its own business, and
its own document tells. Names here are those that `endpoints` has in `accepts`.
"""

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_IDS: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1},
}
_MODEL: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "description": "As GET /v1/models lists it. May be left out where one model is served.",
}


def _object(required: str = "", **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": required.split()} if required else schema


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PROMPTS: Final = _any_of(_TEXT, _list(_TEXT), _IDS, _list(_IDS))
_TEXTS: Final = _any_of(_TEXT, _list(_TEXT))
_STREAM: Final[Schema] = {"type": "boolean", "description": "Answer in server-sent events."}

BODIES: Final[Mapping[str, Schema]] = {
    "Message": _object(
        "role",
        role={"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        content=_any_of(_TEXT, _list(_object("type", type=_TEXT))),
    ),
    "Chat": _object(
        "messages",
        model=_MODEL,
        messages=_list(_ref("Message")),
        stream=_STREAM,
        max_tokens=_COUNT,
        max_completion_tokens=_COUNT,
    ),
    "Completion": _object(
        "prompt", model=_MODEL, prompt=_PROMPTS, stream=_STREAM, max_tokens=_COUNT
    ),
    "Response": _object(
        "input",
        model=_MODEL,
        input=_any_of(_TEXT, _list(_object())),
        instructions=_TEXT,
        previous_response_id=_TEXT,
        stream=_STREAM,
        max_output_tokens=_COUNT,
    ),
    "Messages": _object(
        "model messages max_tokens",
        model=_MODEL,
        messages=_list(_ref("Message")),
        system=_any_of(_TEXT, _list(_object("type", type=_TEXT))),
        stream=_STREAM,
        max_tokens=_COUNT,
    ),
    "CountTokens": _object("model messages", model=_MODEL, messages=_list(_ref("Message"))),
    "Embedding": _object("input", model=_MODEL, input=_PROMPTS),
    "Score": _object("queries documents", model=_MODEL, queries=_TEXTS, documents=_TEXTS),
    "Rerank": _object(
        "query documents", model=_MODEL, query=_TEXT, documents=_list(_TEXT), top_n=_COUNT
    ),
    "Audio": _object("file", model=_MODEL, file={"type": "string", "format": "binary"}),
    "Tokenize": _object(
        model=_MODEL, prompt=_TEXT, messages=_list(_ref("Message")), return_token_strs=_STREAM
    ),
    "Detokenize": _object("tokens", model=_MODEL, tokens=_IDS),
    "Any": _object(model=_MODEL),
}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}

ANSWERS: Final[Mapping[str, Schema]] = {
    "Answer": {"type": "object"},
    "Error": _object(
        "error",
        error=_object(
            "message type",
            message=_TEXT,
            type=_TEXT,
            param=_TEXT_OR_NULL,
            code={"type": ["string", "integer", "null"]},
        ),
    ),
    "NotOffered": _object("detail", detail=_TEXT),
    "AnthropicError": _object(
        "error", type={"const": "error"}, error=_object("type message", type=_TEXT, message=_TEXT)
    ),
}
