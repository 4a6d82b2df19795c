"""One request, and what its answer was worth.

An answer is *whole* (a stream with its end mark, or a complete document), *told* (an error with a
code that docs/operations.md has, in the status or as the stream's last event), *cut* (an answer
that was not a stream lost its connection: its beginning was out, and no error can be told any
more), or *wrong*: anything else. One that is not over within the limit *hung*.
"""

import json
from dataclasses import dataclass

import orjson

from backends.client import Client
from backends.errors import BackendError, PhaseTimeout, StreamBroken
from backends.types import Timeouts

PATH = "/v1/chat/completions"
DONE = b"[DONE]"
DOCUMENTED = frozenset(
    (
        *("no_backend", "expired", "engine_busy", "draining", "queue_full"),
        *("backend_connect", "backend_stream", "backend_response"),
        *("backend_first_token", "backend_token_gap", "backend_total"),
    )
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` as above; `ends` is how many ends the answer had, `why` is for a person."""

    kind: str
    ends: int = 1
    why: str = ""


class _Body:
    """Keeps what came."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, /) -> None:
        self.data += data


async def ask(client: Client, number: int, *, model: str, stream: bool, limit: float) -> Verdict:
    """Send one request and judge its answer. `limit` bounds all of it, in seconds."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{number}: tell me of the water"}],
        "max_tokens": 24,
        "ignore_eos": True,
        "stream": stream,
    }
    timeouts = Timeouts(connect=limit, first_token=limit, token_gap=limit, total=limit)
    came = _Body()
    headers = [("x-request-id", name_of(number))]
    try:
        answer = await client.open(PATH, orjson.dumps(body), timeouts=timeouts, headers=headers)
        await answer.relay(came)
    except PhaseTimeout as error:
        return Verdict("hung", 0, str(error))
    except StreamBroken as error:
        return Verdict("wrong" if stream or not came.data else "cut", 1, str(error))
    except BackendError as error:
        return Verdict("wrong", 0, str(error))
    if answer.status != 200:
        return _told(came.data, f"status {answer.status}")
    return judge_stream(came.data) if stream else _judge_document(came.data)


def name_of(number: int) -> str:
    return f"chaos-{number}"


def judge_stream(data: bytes) -> Verdict:
    """A stream's worth, by its events: exactly one of them, the last, may be an end."""
    events = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    errors = [at for at, event in enumerate(events) if event.startswith(b'{"error"')]
    marks = [at for at, event in enumerate(events) if event == DONE]
    if errors:
        # vLLM itself sends its mark after an error event; so the error is the end.
        ends = len(errors) + (1 if marks and marks[0] < errors[0] else 0)
        verdict = _told(events[errors[0]], "an event")
        return Verdict(verdict.kind, ends, verdict.why)
    if len(marks) == 1 and marks[0] == len(events) - 1:
        return Verdict("whole")
    return Verdict("wrong", len(marks), f"{len(events)} events, ends at {marks}")


def _judge_document(data: bytes) -> Verdict:
    try:
        return Verdict("whole") if json.loads(data)["choices"][0]["message"] else Verdict("wrong")
    except (ValueError, KeyError, IndexError, TypeError):
        return Verdict("wrong", 1, f"not a completion: {data[:80]!r}")


def _told(data: bytes, where: str) -> Verdict:
    try:
        code = json.loads(data)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return Verdict("wrong", 1, f"{where}: no error in {data[:80]!r}")
    return Verdict("told" if code in DOCUMENTED else "wrong", 1, str(code))
