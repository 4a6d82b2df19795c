"""One request being answered: the engine's tokens become events on its connection.

Events are written to the transport as the engine's step ends, without waking a task for each:
the server shares its cores with what is measured. Only the end of the answer wakes the handler.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from bench.fake_vllm.answers import Answer
from bench.fake_vllm.asks import Ask
from bench.fake_vllm.pump import Sink
from bench.fake_vllm.wire import Wire


@dataclass(frozen=True, slots=True)
class Cut:
    """Break the answer off after so many tokens: by a reset, or by silence."""

    after: int
    reset: bool


class Exchange:
    """`done` resolves to the end of the body: for a stream what was not yet written of it."""

    def __init__(
        self,
        ask: Ask,
        answers: list[Answer],
        wire: Wire,
        *,
        transport: asyncio.Transport | None,
        cut: Cut | None = None,
    ) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._ask = ask
        self._wire = wire
        self._transport = transport
        self._cut = cut
        self._sent = [0] * len(answers)
        self._open = len(answers)

    def sink(self, index: int) -> Sink:
        """Where the engine's tokens for that choice go."""
        return partial(self._deliver, index)

    def _deliver(self, index: int, count: int, finished: bool) -> None:
        first = self._sent[index]
        self._sent[index] += count
        positions = range(first, first + count)
        if self._cut is not None and positions.stop > self._cut.after:
            self._break_off(self._cut, index, positions)
            return
        self._open -= finished
        if self._ask.stream:
            self._stream(index, positions)
        elif not self._open:
            self._finish(self._wire.document())

    def _stream(self, index: int, positions: range) -> None:
        events = [] if positions.start else [self._wire.opening(index)]
        events += [self._wire.token(index, position) for position in positions]
        if self._open:
            self._write(b"".join(events))
            return
        if self._ask.include_usage:
            events.append(self._wire.usage())
        events.append(self._wire.end)
        self._finish(b"".join(events))

    def _write(self, data: bytes) -> None:
        """One chunk of a chunked body: aiohttp's own `write` is a coroutine."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _finish(self, rest: bytes) -> None:
        if not self.done.done():
            self.done.set_result(rest)

    def _break_off(self, cut: Cut, index: int, positions: range) -> None:
        before = range(positions.start, cut.after)
        if before and self._ask.stream:
            self._stream(index, before)
        if cut.reset and self._transport is not None:
            self._transport.abort()
