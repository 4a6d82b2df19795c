"""Takes out of an answer what the gateway asked for and the client did not.

To watch that engines use our ids, a stream is asked for its usage and a sampled answer for the ids
it was computed from (`tokenizer_pool.upstream`). Both are read here and removed, so that the
client gets what it would have got without us. A chunk with tokens is passed on after one look at
its end and is not parsed. What the findings mean is decided in `watchdog`.
"""

import re
from typing import Any, Protocol

import orjson

from backends.types import Sink

# Inside a JSON string the quotes would be escaped: a model's words cannot look like these.
_USAGE = b'"usage"'
_FINISHED = b'"finish_reason":"'
_PROMPT_IDS = re.compile(rb'"prompt_token_ids":\s*(\[[\d,\s]*\])')
_OUTPUT_IDS = re.compile(rb'"token_ids":\s*\[[\d,\s]*\]')
# Tokens without text, which vLLM only tells of when it is asked for ids.
_SILENT = (b'"delta":{}', b'"finish_reason":null')
# How vLLM's chunks with tokens end. The end of a read tells of all of it: with one choice, and no
# other answer is filtered, tokens come before the finish reason, and that before the usage.
_TOKENS = (
    b'"finish_reason":null,"token_ids":null}]}\n\n',
    b'"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n',
)
_EVENT = b"data: "
_END = b"\n\n"
_LONGEST_EVENT = 1 << 24


class Filter(Protocol):
    """Stands before a sink. `prompt_tokens`, `prompt_ids` (JSON) and, where it was taken out,
    `answer_tokens` are what the answer told."""

    sink: Sink | None
    answer_tokens: int | None
    prompt_tokens: int | None
    prompt_ids: bytes | None

    def write(self, data: bytes, /) -> None: ...

    def finish(self, *, whole: bool) -> None:
        """Pass on what was kept back: all of it, or whole events only when the answer broke."""
        ...


class StreamFilter:
    """For server-sent events: removes the `usage` at their end, and the `ids`.

    For answers with one choice. A server may be set to tell usage in any case (it then does so in
    every chunk): it stays.
    """

    __slots__ = (
        *("_ids", "_kept", "_last", "_stays"),
        *("answer_tokens", "prompt_ids", "prompt_tokens", "sink"),
    )

    def __init__(self, *, usage: bool, ids: bool) -> None:
        self.sink: Sink | None = None
        self.answer_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.prompt_ids: bytes | None = None
        self._ids = ids
        self._stays = not usage
        self._kept = b""  # the beginning of an event whose end has not come
        self._last = b""  # the event with the finish reason, until it is clear what follows

    def write(self, data: bytes, /) -> None:
        if not data.endswith(_TOKENS) or self._kept or self._last or self._ids:
            data = self._events(self._kept + data)
        if data:
            assert self.sink is not None
            self.sink.write(data)

    def finish(self, *, whole: bool) -> None:
        rest = self._last + (self._kept if whole else b"")
        self._last = self._kept = b""
        if rest:
            assert self.sink is not None
            self.sink.write(rest)

    def _events(self, data: bytes) -> bytes:
        """What of the data, cut into events, goes to the client now."""
        *events, self._kept = data.split(_END)
        passed = [self._event(event + _END) for event in events]
        if len(self._kept) > _LONGEST_EVENT:  # not a stream of events after all
            passed += [self._last, self._kept]
            self._last = self._kept = b""
        return b"".join(passed)

    def _event(self, event: bytes) -> bytes:
        if self._ids:
            event = self._without_ids(event)
        before, self._last = self._last, b""
        if _USAGE in event and (document := _parsed(event)) and document.get("usage"):
            self._count(document["usage"])
            if document.get("choices"):
                self._stays = True
            elif not self._stays:
                return _with_fingerprint(before, document)
        elif _FINISHED in event and not self._stays:
            # Without a usage behind it, vLLM would have put its fingerprint here.
            self._last = event
            return before
        return before + event

    def _count(self, usage: Any) -> None:
        told = usage if isinstance(usage, dict) else {}
        tokens, answer = told.get("prompt_tokens"), told.get("completion_tokens")
        self.prompt_tokens = tokens if type(tokens) is int else None
        self.answer_tokens = answer if type(answer) is int else None

    def _without_ids(self, event: bytes) -> bytes:
        found = _PROMPT_IDS.search(event)
        if found is not None:
            self.prompt_ids = found[1]
        if all(mark in event for mark in _SILENT):
            return b""
        return _nulled(event)


class BodyFilter:
    """For an answer in one piece: removes the ids. It is kept until it is complete."""

    __slots__ = ("_data", "answer_tokens", "prompt_ids", "prompt_tokens", "sink")

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.answer_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.prompt_ids: bytes | None = None
        self._data: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        self._data.append(data)

    def finish(self, *, whole: bool) -> None:
        body = b"".join(self._data)
        self._data.clear()
        if whole and body:
            found = _PROMPT_IDS.search(body)
            self.prompt_ids = None if found is None else found[1]
            assert self.sink is not None
            self.sink.write(_nulled(body))


def _nulled(data: bytes) -> bytes:
    """As vLLM answers when nobody asks for ids."""
    return _OUTPUT_IDS.sub(b'"token_ids":null', _PROMPT_IDS.sub(b'"prompt_token_ids":null', data))


def _parsed(event: bytes) -> dict[str, Any] | None:
    if not event.startswith(_EVENT):
        return None
    try:
        document = orjson.loads(event[len(_EVENT) :])
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _with_fingerprint(event: bytes, usage: dict[str, Any]) -> bytes:
    """The last event with choices, with the fingerprint that the usage behind it took away."""
    fingerprint = usage.get("system_fingerprint")
    if not isinstance(fingerprint, str) or not event.endswith(b"}" + _END):
        return event
    return b'%b,"system_fingerprint":%b}%b' % (
        event[: -len(_END) - 1],
        orjson.dumps(fingerprint),
        _END,
    )
