"""One request of the load: sent, read to its end, turned into a Sample whatever happens to it."""

import asyncio
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import monotonic

from backends.client import Client
from backends.errors import BackendError
from backends.stream import Stream
from backends.types import Timeouts
from bench.load.answer import (
    Answer,
    DocumentReading,
    Reading,
    StreamReading,
    header,
    seconds,
    stages,
)
from bench.load.sample import Sample
from bench.load.target import Target


@dataclass(frozen=True, slots=True)
class Request:
    """One planned request. `at` is its intended start, in seconds from the start of the run.

    `parts` joined are the prompt; requests with a common prefix share the objects.
    """

    number: int
    at: float
    parts: list[str] = field(repr=False)
    prompt_tokens: int
    output_tokens: int
    service_class: str
    warm_up: bool = False


class Exchanger:
    """Sends requests to one target and returns what became of each.

    `began` is the run's start on the monotonic clock: uvloop's own only counts milliseconds.
    """

    def __init__(self, target: Target, client: Client, timeouts: Timeouts, *, began: float) -> None:
        self._target = target
        self._client = client
        self._timeouts = timeouts
        self.began = began

    def now(self) -> float:
        """Seconds from the start of the run; before it, below 0."""
        return monotonic() - self.began

    async def send(self, request: Request) -> Sample:
        """Never raises for what the server does. Cancelled, it returns the sample of a cut one."""
        body = self._target.body(request.parts, request.output_tokens)
        sent = monotonic()
        reading: Reading | None = None
        stream: Stream | None = None
        error = ""
        try:
            stream = await self._client.open(self._target.path, body, timeouts=self._timeouts)
            reading = self._reading(stream)
            await stream.relay(reading)
        except BackendError as failure:
            error = snake_case(type(failure).__name__)
        except asyncio.CancelledError:
            error = "cancelled"
        answer = Answer() if reading is None else reading.answer()
        came = 0.0 if reading is None else reading.last
        ended = came if came and not error else monotonic()
        return self._sample(request, stream, replace(answer, error=error or answer.error),
                            sent=sent, ended=ended)  # fmt: skip

    def _reading(self, stream: Stream) -> Reading:
        if stream.status == 200 and self._target.stream:
            return StreamReading(stream.first_byte_at)
        return DocumentReading(stream.first_byte_at, stream.status)

    def _sample(
        self, request: Request, stream: Stream | None, answer: Answer, *, sent: float, ended: float
    ) -> Sample:
        times = [at - self.began for at in answer.times]
        headers = stream.headers if stream is not None else []
        return Sample(
            number=request.number,
            service_class=header(headers, b"x-forebay-class") or request.service_class,
            warm_up=request.warm_up,
            intended=request.at,
            sent=sent - self.began,
            ended=ended - self.began,
            status=stream.status if stream is not None else 0,
            error=answer.error,
            retry_after=seconds(header(headers, b"retry-after")),
            first_token=times[0] if times else None,
            last_token=times[-1] if times else None,
            prompt_tokens=answer.prompt_tokens or request.prompt_tokens,
            output_tokens=len(times) if answer.output_tokens is None else answer.output_tokens,
            gaps=tuple(later - earlier for earlier, later in pairwise(times)),
            backend=header(headers, b"x-forebay-backend"),
            stages=stages(header(headers, b"server-timing")),
        )


def snake_case(name: str) -> str:
    """`ConnectFailed` as `connect_failed`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
