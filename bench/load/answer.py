"""Reading an answer: when each piece of its text came, and what the server says of itself.

Bytes are only stamped while they arrive; they are parsed when the answer is over, so that parsing
one answer does not delay the stamps of another by more than it must.
"""

from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson

from backends.stream import Headers

END = b"\n\n"
PREFIX = b"data: "
DONE = b"[DONE]"


class Stamps:
    """A backends.types.Sink that notes when each piece of a body came."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []

    def write(self, data: bytes) -> None:
        self.pieces.append((monotonic(), data))


@dataclass(frozen=True, slots=True)
class Answer:
    """`times` has one entry for each event with text; `error` as in sample.Sample."""

    times: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""


def read_stream(pieces: list[tuple[float, bytes]]) -> Answer:
    """An SSE body. Each event has the time of the piece that completed it."""
    times: list[float] = []
    usage: dict[str, Any] = {}
    error, done, rest = "", False, b""
    for at, data in pieces:
        *events, rest = (rest + data).split(END)
        for event in events:
            payload = event.removeprefix(PREFIX)
            if payload == DONE:
                done = True
            elif event.startswith(PREFIX):
                document = orjson.loads(payload)
                usage = document.get("usage") or usage
                error = error or ("error_event" if "error" in document else "")
                if _has_text(document):
                    times.append(at)
    if not error and not done:
        error = "incomplete"
    return Answer(tuple(times), usage.get("prompt_tokens"), usage.get("completion_tokens"), error)


def _has_text(document: dict[str, Any]) -> bool:
    for choice in document.get("choices", ()):
        delta = choice.get("delta")
        if choice.get("text") if delta is None else _says(delta):
            return True
    return False


def _says(delta: dict[str, Any]) -> bool:
    return bool(delta.get("content") or delta.get("reasoning") or delta.get("tool_calls"))


def read_document(pieces: list[tuple[float, bytes]]) -> Answer:
    """The body of an answer that was not streamed: no time but its end is known."""
    try:
        document = orjson.loads(b"".join(data for _, data in pieces))
    except orjson.JSONDecodeError:
        return Answer(error="incomplete")
    usage = document.get("usage") or {}
    return Answer((), usage.get("prompt_tokens"), usage.get("completion_tokens"))


def header(headers: Headers, name: bytes) -> str:
    """The first value of that name, or an empty text."""
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def seconds(retry_after: str) -> float | None:
    """A Retry-After in seconds, whole or not; None when there is none, or when it is a date."""
    try:
        return float(retry_after)
    except ValueError:
        return None


def stages(server_timing: str) -> tuple[tuple[str, float], ...]:
    """`read;dur=0.1, queue;dur=2` (milliseconds) as names and seconds; others are left out."""
    found = []
    for part in server_timing.split(","):
        name, _, duration = part.strip().partition(";dur=")
        if duration:
            found.append((name, float(duration) / 1000))
    return tuple(found)
