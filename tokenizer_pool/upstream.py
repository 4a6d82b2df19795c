"""The bodies that go upstream, written anew from a parsed request: its prompt as text, or as ids.

An answer to ids shall tell how many tokens it was computed from, so that engines which do not use
ours are noticed. What the client did not ask for itself is asked for here, and `Asked` says so:
whoever relays the answer takes it out again. Parsing is `requests`; what ids are right, `model`.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from tokenizer_pool.requests import PROMPT_KEY, Document
from tokenizer_pool.types import Kind, Wanted

_TEXT_KEY: Final = {Kind.CHAT: b',"messages":', Kind.COMPLETION: b',"prompt":'}
# A chat says its ids in `kv_transfer_params`, beside an empty `messages` so that nothing travels
# twice (vLLM 0.32 renders nothing then; docs/adr/ids-beside-empty-messages.md).
_BEFORE_IDS: Final = {
    Kind.CHAT: b',"messages":[],"kv_transfer_params":{"prompt_token_ids":',
    Kind.COMPLETION: b',"prompt":',
}
_BEHIND_IDS: Final = {Kind.CHAT: b"}}", Kind.COMPLETION: b"}"}
_USAGE: Final = b',"stream_options":{"include_usage":true}'
_PROMPT_IDS: Final = b',"return_token_ids":true'


@dataclass(frozen=True, slots=True)
class Asked:
    """What we ask of an answer beyond what the client did."""

    usage: bool = False
    prompt_ids: bool = False


NOTHING: Final = Asked()
_ASKED: Final = {(u, p): Asked(u, p) for u in (False, True) for p in (False, True)}


def text_body(document: Document, kind: Kind, model: str) -> bytes:
    """The client's own request, less what it may not say; the model is named in any case."""
    prompt = document.prompt(PROMPT_KEY[kind])
    return b"".join((_fields(document, model), _TEXT_KEY[kind], prompt, b"}"))


def whole_body(document: Document, model: str) -> bytes:
    """The same for a request whose prompt was not taken out of `rest`."""
    return b"%b}" % _fields(document, model)


def ids_body(kind: Kind, head: bytes, ids: bytes) -> bytes:
    """A request with token ids (a JSON array) for its prompt; `head` is from `ids_head`."""
    return b"".join((head, _BEFORE_IDS[kind], ids, _BEHIND_IDS[kind]))


def ids_head(document: Document, kind: Kind, model: str, wanted: Wanted) -> tuple[bytes, Asked]:
    """All fields but the prompt, with what is `wanted` of the answer, and what of it is ours."""
    values = document.values
    usage = wanted.usage and values.get("stream") is True and _lacks_usage(values)
    prompt_ids = wanted.prompt_ids and not values.get("return_token_ids")
    if not (usage or prompt_ids) or ("n" in values and values["n"] not in (1, None)):
        # Of several choices each has an end of its own, and they come in any order.
        return _fields(document, model), NOTHING
    asked = _ASKED[usage, prompt_ids]
    if (usage and "stream_options" in values) or (prompt_ids and "return_token_ids" in values):
        return _fields(_rewritten(document, kind, asked), model), asked
    return b"%b%b%b" % (
        _fields(document, model), _USAGE if usage else b"", _PROMPT_IDS if prompt_ids else b""
    ), asked  # fmt: skip


def _fields(document: Document, model: str) -> bytes:
    """The object without its prompt and its closing brace: never empty."""
    fields = document.rest[:-1]
    if "model" in document.values:
        return fields
    named = b'{"model":%b' % orjson.dumps(model)
    return named if fields == b"{" else b"%b,%b" % (named, fields[1:])


def _lacks_usage(values: dict[str, Any]) -> bool:
    """Would the stream end without `usage`? Options that vLLM will refuse are left as they are."""
    options = values.get("stream_options")
    return not options or (isinstance(options, dict) and not options.get("include_usage"))


def _rewritten(document: Document, kind: Kind, asked: Asked) -> Document:
    """The client said a part of it, but not what we need."""
    rest = {name: v for name, v in document.values.items() if name != PROMPT_KEY[kind]}
    if asked.usage:
        options = rest.get("stream_options") or {}
        # Without `include_usage` vLLM ignores the wish for usage in each chunk, and so must we.
        rest["stream_options"] = options | {"include_usage": True, "continuous_usage_stats": False}
    if asked.prompt_ids:
        rest["return_token_ids"] = True
    return Document(document.values, document.dump(rest), document.exact)
