"""Reading an answer: when each piece of its text came, and what the server says of itself."""

from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

import orjson

from backends.stream import Headers

END = b"\n\n"
PREFIX = b"data: "
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Answer:
    """`times` has one entry for each event with a token; `error` as in sample.Sample."""

    times: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""


class Reading(Protocol):
    """Takes a body piece by piece (a backends.types.Sink) and says what it was.

    `last` is when the latest piece came, 0 before the first.
    """

    @property
    def last(self) -> float: ...

    def write(self, data: bytes) -> None: ...

    def answer(self) -> Answer: ...


class StreamReading:
    """An SSE body. Each event has the time of the piece that completed it.

    `first_at` is when the first piece came, which waits for its reader. A piece is stamped before
    it is parsed, and parsed at once: many in one go would delay the stamps of other answers.
    """

    __slots__ = ("_done", "_error", "_first_at", "_rest", "_times", "_usage", "last")

    def __init__(self, first_at: float) -> None:
        self.last = 0.0
        self._first_at = first_at
        self._rest = b""
        self._times: list[float] = []
        self._usage: dict[str, Any] = {}
        self._error = ""
        self._done = False

    def write(self, data: bytes) -> None:
        self.last = monotonic() if self.last else self._first_at
        *events, self._rest = (self._rest + data).split(END)
        for event in events:
            if event.startswith(PREFIX):
                self._read(event.removeprefix(PREFIX))

    def _read(self, payload: bytes) -> None:
        if payload == DONE:
            self._done = True
            return
        document = orjson.loads(payload)
        self._usage = document.get("usage") or self._usage
        if "error" in document:
            self._error = "error_event"
        if _has_token(document):
            self._times.append(self.last)

    def answer(self) -> Answer:
        usage = self._usage
        error = self._error or ("" if self._done else "incomplete")
        return Answer(
            tuple(self._times), usage.get("prompt_tokens"), usage.get("completion_tokens"), error
        )


class DocumentReading:
    """The body of an answer that was not streamed: no time but its end is known.

    A `status` other than 200 is an error whatever the body says.
    """

    __slots__ = ("_first_at", "_pieces", "_status", "last")

    def __init__(self, first_at: float, status: int = 200) -> None:
        self.last = 0.0
        self._first_at = first_at
        self._status = status
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.last = monotonic() if self.last else self._first_at
        self._pieces.append(data)

    def answer(self) -> Answer:
        if self._status != 200:
            return Answer(error=f"http_{self._status}")
        try:
            document = orjson.loads(b"".join(self._pieces))
        except orjson.JSONDecodeError:
            return Answer(error="incomplete")
        usage = document.get("usage") or {}
        return Answer((), usage.get("prompt_tokens"), usage.get("completion_tokens"))


def _has_token(document: dict[str, Any]) -> bool:
    return any(_says(choice) for choice in document.get("choices", ()))


def _says(choice: dict[str, Any]) -> bool:
    """Whether it carries a token, also one without text: half a character is an empty text.

    A chat begins with a role and an empty text, which is no token, and may end without a text.
    """
    delta = choice.get("delta")
    if delta is None:
        return "text" in choice
    said = delta.get("content") or delta.get("reasoning") or delta.get("tool_calls")
    return bool(said) or ("content" in delta and "role" not in delta)


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
