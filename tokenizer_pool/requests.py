"""A request's JSON: parsing and checking what comes in, splicing what goes upstream.

The body is parsed once and never trusted: what goes upstream is written anew, so that no two
readers can see two requests in it. Nothing here knows a tokenizer.
"""

import json
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
# orjson reads integers beyond 64 bits as floats and prints those with an exponent.
_EXPONENT: Final = b"e+"
_COMPLETION_MAX_TOKENS: Final = 16


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise InvalidRequest("the body is nested too deeply") from error


def _dump_exactly(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply") from error


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed body: all its `values`, and those beside the prompt as the JSON object `rest`.

    `exact` means that Python's parser was needed to keep its numbers.
    """

    values: dict[str, Any]
    rest: bytes = b"{}"
    exact: bool = False

    def dump(self, value: Any) -> bytes:
        """`value` as compact JSON; raises InvalidRequest when it is nested too deeply."""
        return _dump_exactly(value) if self.exact else _dump(value)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"the body is not valid JSON: {name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise InvalidRequest("the body is not valid JSON: a key appears twice in one object")
    return seen


def _parse_exactly(body: bytes) -> Any:
    """Python's parser: slow, exact on any integer, and it can refuse duplicate keys."""
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error


def parse(body: bytes, kind: Kind, *, trusted: bool = False) -> Document:
    """The body as a JSON object that has a prompt; raises InvalidRequest.

    What a client may not steer is taken out unless its key is trusted.
    """
    values = _load(body)
    prompt_key = PROMPT_KEY[kind]
    if prompt_key not in values:
        raise InvalidRequest(f"{prompt_key} is required", param=prompt_key)
    if kind is Kind.CHAT:
        _check_messages(values)
    return _document(values, body, prompt_key, frozenset() if trusted else STRIPPED)


def parse_tokenize(body: bytes) -> Document:
    """The body of a `/tokenize` request: an object with `messages` or `prompt`."""
    values = _load(body)
    if "messages" in values:
        _check_messages(values)
    return _document(values, body, "messages" if "messages" in values else "prompt", frozenset())


def parse_detokenize(body: bytes) -> Document:
    """The body of a `/detokenize` request: an object with `tokens`."""
    return Document(_load(body))


def _load(body: bytes) -> dict[str, Any]:
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidRequest("the body must be a JSON object")
    return values


def _check_messages(values: dict[str, Any]) -> None:
    messages = values["messages"]
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a list with at least one message", param="messages")


def _document(
    values: dict[str, Any], body: bytes, prompt_key: str, stripped: frozenset[str]
) -> Document:
    # Of a key that comes twice the last one counts, here as in vLLM, and only that one travels
    # on. Two prompts are too strange for that.
    exact = body.count(b'"%b"' % prompt_key.encode()) > 1
    if not exact:
        document = _split(values, prompt_key, stripped, exact=False)
        if _EXPONENT not in document.rest:
            return document
    return _split(_parse_exactly(body), prompt_key, stripped, exact=True)


def _split(
    values: dict[str, Any], prompt_key: str, stripped: frozenset[str], *, exact: bool
) -> Document:
    if not stripped.isdisjoint(values):
        values = {key: value for key, value in values.items() if key not in stripped}
    if values.get("model", "") is None:
        del values["model"]
    rest = values.copy()
    rest.pop(prompt_key, None)
    return Document(values, _dump_exactly(rest) if exact else _dump(rest), exact)


def model_name(document: Document) -> str | None:
    """The model asked for; None when the request leaves it to us."""
    name = document.values.get("model")
    if not isinstance(name, str | None):
        raise InvalidRequest("model must be a string", param="model")
    return name


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
    return value


def max_tokens(document: Document, kind: Kind) -> int | None:
    """The output tokens asked for; None where vLLM takes what the context length leaves."""
    asked = _count(document, "max_tokens")
    if kind is Kind.COMPLETION:
        return _COMPLETION_MAX_TOKENS if asked is None else asked
    newer = _count(document, "max_completion_tokens")
    return asked if newer is None else newer


def upstream_fields(document: Document, model: str) -> bytes:
    """The object that goes upstream, without its prompt and without its closing brace.

    It is never empty: the model is named even where the client left it out.
    """
    fields = document.rest[:-1]
    if "model" in document.values:
        return fields
    named = b'{"model":%b' % orjson.dumps(model)
    return named if fields == b"{" else b"%b,%b" % (named, fields[1:])


def text_prompt(document: Document, kind: Kind) -> bytes:
    """The client's own prompt, to be spliced behind the fields."""
    prompt_key = PROMPT_KEY[kind]
    return b',"%b":%b' % (prompt_key.encode(), document.dump(document.values[prompt_key]))


def ids_prompt(kind: Kind, ids: bytes) -> bytes:
    """The prompt as token ids (a JSON array), to be spliced behind the fields.

    A chat says them in `kv_transfer_params`, beside an empty `messages` so that nothing travels
    twice (vLLM 0.32 renders nothing then; docs/adr/ids-beside-empty-messages.md).
    """
    if kind is Kind.COMPLETION:
        return b',"prompt":%b' % ids
    return b',"messages":[],"kv_transfer_params":{"prompt_token_ids":%b}' % ids


def dump_strings(strings: list[str]) -> bytes:
    """Tokens as the vocabulary spells them, as a JSON array."""
    return orjson.dumps(strings)


def dump_ids(ids: list[int]) -> bytes:
    """The client's own token ids as a JSON array."""
    return json.dumps(ids, separators=(",", ":")).encode()
