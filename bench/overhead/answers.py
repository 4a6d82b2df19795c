"""The bytes of an instant engine's answers, in vLLM's format and made once.

Not here: when they are sent (`engine`).
"""

from typing import Any

import orjson

MODEL = "instant"

_EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nx-engine-us: %d\r\n\r\n"
)
_WHOLE = b"HTTP/1.1 %d OK\r\ncontent-type: %b\r\ncontent-length: %d\r\nx-engine-us: %d\r\n\r\n%b"
_LAST_CHUNK = b"0\r\n\r\n"


def _head(kind: str) -> dict[str, Any]:
    name = "chatcmpl-5f0c7a7e0d2b4d3b9a3d6b1f6e1c2a90"
    return {"id": name, "object": kind, "created": 1_796_000_000, "model": MODEL}


def _event(data: bytes) -> bytes:
    """One server-sent event as one HTTP chunk, as vLLM sends them."""
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    fields = {"choices": [choice | {"token_ids": None}]}
    return _event(orjson.dumps(_head("chat.completion.chunk") | fields))


_ROLE = _chunk({"role": "assistant", "content": ""})
_TOKEN = _chunk({"content": " water"})
_FINISH = _chunk({"content": " water"}, "length")
_DONE = _event(b"[DONE]")


def opening(engine_us: int) -> bytes:
    """A stream's head and role; `engine_us` tells how long the engine had the request."""
    return _EVENTS % engine_us + _ROLE


def token(*, last: bool) -> bytes:
    return _FINISH if last else _TOKEN


def closing(prompt_tokens: int, tokens: int, *, include_usage: bool) -> bytes:
    usage = b""
    if include_usage:
        counts = {"choices": [], "usage": _usage(prompt_tokens, tokens)}
        usage = _event(orjson.dumps(_head("chat.completion.chunk") | counts))
    return usage + _DONE + _LAST_CHUNK


def chat(prompt_tokens: int, tokens: int, ids: list[int] | None) -> dict[str, Any]:
    """A chat's whole answer; `ids` are the prompt's, where the request wants them back."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": " water" * tokens},
        "logprobs": None,
        "finish_reason": "length",
    }
    usage = {"usage": _usage(prompt_tokens, tokens), "prompt_token_ids": ids}
    return _head("chat.completion") | {"choices": [choice]} | usage


def completion(prompt_tokens: int, tokens: int, ids: list[int] | None) -> dict[str, Any]:
    """The same for a completion."""
    choice = {
        "index": 0,
        "text": " water" * tokens,
        "finish_reason": "length",
        "prompt_token_ids": ids,
    }
    return _head("text_completion") | {
        "choices": [choice],
        "usage": _usage(prompt_tokens, tokens),
    }


def document(fields: dict[str, Any], *, status: int = 200, engine_us: int = 0) -> bytes:
    body = orjson.dumps(fields)
    return _WHOLE % (status, b"application/json", len(body), engine_us, body)


def page(text: str) -> bytes:
    return _WHOLE % (200, b"text/plain", len(text), 0, text.encode())


def _usage(prompt_tokens: int, tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + tokens,
        "completion_tokens": tokens,
    }
