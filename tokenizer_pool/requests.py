"""A request's JSON: parsing and checking what comes in.

The body is parsed once and never trusted: what goes upstream (`upstream`) is written anew from
what was parsed, so that no two readers can see two requests in it. Nothing here knows a tokenizer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import orjson

from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.types import Kind

# What a client may not steer: prompt ids and disaggregation, scheduling, the engine's own
# request id, custom extensions. Everything else that vLLM reads is the client's business.
STRIPPED: Final = frozenset(
    {"kv_transfer_params", "ec_transfer_params", "priority", "vllm_xargs", "request_id"}
)
PROMPT_KEY: Final = {Kind.CHAT: "messages", Kind.COMPLETION: "prompt"}
NO_ALIASES: Final[Mapping[str, str]] = {}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# orjson reads integers beyond 64 bits as floats and prints those with an exponent.
_EXPONENT: Final = b"e+"
_COMPLETION_MAX_TOKENS: Final = 16
# No context is longer; a number without a bound would not fit the worker's reply.
MOST_TOKENS: Final = 2**31 - 1


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise InvalidRequest("the body is nested too deeply", code="invalid_json") from error


def _dump_exactly(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply", code="invalid_json") from error


@dataclass(slots=True)
class Document:
    """A parsed body, which nobody changes: all its `values`, and those beside the prompt as JSON.

    `exact` means that Python's parser was needed to keep the numbers beside the prompt; without it
    `tools` are the request's tools as JSON, if it has any. `body` is what was parsed.
    """

    values: dict[str, Any]
    rest: bytes = b"{}"
    exact: bool = False
    tools: bytes | None = None
    body: bytes = b""

    def dump(self, value: Any) -> bytes:
        """`value` as compact JSON; raises InvalidRequest when it is nested too deeply."""
        return _dump_exactly(value) if self.exact else _dump(value)

    def prompt(self, key: str) -> bytes:
        """The prompt as compact JSON, with each number as the client wrote it."""
        dumped = self.dump(self.values[key])
        if _EXPONENT in dumped and not self.exact and self.body:
            return _dump_exactly(_parse_exactly(self.body)[key])
        return dumped


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"the body is not JSON: {name} is no number", code="invalid_json")


def _parse_exactly(body: bytes) -> Any:
    """Python's parser: slow, and exact on any integer."""
    try:
        return json.loads(bytes(body), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from error


def parse(
    body: bytes, kind: Kind, *, trusted: bool = False, aliases: Mapping[str, str] = NO_ALIASES
) -> Document:
    """The body as a JSON object that has a prompt; raises InvalidRequest.

    What a client may not steer is taken out unless its key is trusted. A model that goes by an
    alias gets its own name.
    """
    values = _load(body, aliases)
    prompt_key = PROMPT_KEY[kind]
    if prompt_key not in values:
        raise InvalidRequest(f"{prompt_key} is required", param=prompt_key)
    if kind is Kind.CHAT:
        _check_messages(values)
    return _document(values, body, prompt_key, frozenset() if trusted else STRIPPED)


def parse_any(
    body: bytes, *, trusted: bool = False, aliases: Mapping[str, str] = NO_ALIASES
) -> Document:
    """The same for a body whose prompt is anywhere in it: all of it is `rest`."""
    values = _load(body, aliases)
    return _document(values, body, None, frozenset() if trusted else STRIPPED)


def parse_tokenize(body: bytes, aliases: Mapping[str, str] = NO_ALIASES) -> Document:
    """The body of a `/tokenize` request: an object with `messages` or `prompt`."""
    values = _load(body, aliases)
    if "messages" in values:
        _check_messages(values)
    return _document(values, body, "messages" if "messages" in values else "prompt", frozenset())


def parse_detokenize(body: bytes, aliases: Mapping[str, str] = NO_ALIASES) -> Document:
    """The body of a `/detokenize` request: an object with `tokens`."""
    return Document(_load(body, aliases))


def _load(body: bytes, aliases: Mapping[str, str]) -> dict[str, Any]:
    if body[:3] == _BYTE_ORDER_MARK:  # some editors write it, and Python's parser takes it
        body = body[3:]
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(values, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_json")
    if aliases and isinstance(name := values.get("model"), str) and name in aliases:
        values["model"] = aliases[name]
    return values


def _check_messages(values: dict[str, Any]) -> None:
    messages = values["messages"]
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a list with at least one message", param="messages")


def _document(
    values: dict[str, Any], body: bytes, prompt_key: str | None, stripped: frozenset[str]
) -> Document:
    # Of a key that comes twice the last one counts, here as in vLLM, and only that one travels on.
    rest, tools = _rest(values, prompt_key, stripped), None
    if "tools" in rest:
        tools = _dump(rest["tools"])
        rest["tools"] = orjson.Fragment(tools)
    dumped = _dump(rest)
    if _EXPONENT in dumped:
        exactly = _parse_exactly(body)
        values = exactly | {"model": values["model"]} if "model" in values else exactly
        return Document(values, _dump_exactly(_rest(values, prompt_key, stripped)), exact=True)
    return Document(values, dumped, False, tools, body)


def _rest(
    values: dict[str, Any], prompt_key: str | None, stripped: frozenset[str]
) -> dict[str, Any]:
    """Take out of `values` what must not be in them; returns what stands beside the prompt."""
    if not stripped.isdisjoint(values):
        for name in stripped.intersection(values):
            del values[name]
    if "model" in values and values["model"] in (None, ""):
        del values["model"]
    rest = values.copy()
    if prompt_key is not None:
        rest.pop(prompt_key, None)
    return rest


def model_name(document: Document) -> str | None:
    """The model asked for; None when the request leaves it to us, also by an empty name."""
    name = document.values.get("model")
    if not isinstance(name, str | None):
        raise InvalidRequest("model must be a string", param="model", code="invalid_model")
    return name or None


def wants_stream(document: Document) -> bool:
    """Does the client want the answer as a stream?"""
    stream = document.values.get("stream")
    if not isinstance(stream, bool | None):
        raise InvalidRequest("stream must be true or false", param="stream")
    return bool(stream)


def _count(document: Document, name: str) -> int | None:
    value = document.values.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"{name} must be a whole number of tokens", param=name)
    return min(value, MOST_TOKENS)


def max_tokens(document: Document, kind: Kind) -> int | None:
    """The output tokens asked for; None where vLLM takes what the context length leaves."""
    asked = _count(document, "max_tokens")
    if kind is Kind.COMPLETION:
        return _COMPLETION_MAX_TOKENS if asked is None else asked
    if "max_completion_tokens" in document.values:
        newer = _count(document, "max_completion_tokens")
        return asked if newer is None else newer
    return asked


def dump_strings(strings: list[str]) -> bytes:
    """Tokens as the vocabulary spells them, as a JSON array."""
    return orjson.dumps(strings)


def dump_ids(ids: list[int]) -> bytes:
    """The client's own token ids as a JSON array."""
    return json.dumps(ids, separators=(",", ":")).encode()
