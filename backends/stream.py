"""One upstream exchange, from the sent request to the end of the answer's body.

Lives here: the waiting, the deadlines, the hand-over of body bytes. Not here: sockets, HTTP
parsing and the pool (`connection`, `client`), and any look into the body.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic

from backends.errors import (
    FirstTokenTimeout,
    PhaseTimeout,
    StreamBroken,
    TokenGapTimeout,
    TotalTimeout,
)
from backends.types import Sink, Timeouts

HELD_BYTES = 65_536
"""Body bytes kept for a `relay` that has not begun, before reading from the socket is paused."""

Headers = list[tuple[bytes, bytes]]


class Stream:
    """An answer whose head has come, and whose body is to be relayed.

    `headers` are the end-to-end ones in the server's order, names in lower case. The times are of
    the monotonic clock (uvloop's own only counts milliseconds): `connected_at` when the request
    was written, `first_byte_at` when the first byte of the body came (for an empty body: its end).
    """

    __slots__ = (
        "_answered",
        "_backend",
        "_done",
        "_ended",
        "_error",
        "_held",
        "_held_bytes",
        "_loop",
        "_paused",
        "_sink",
        "_timeouts",
        "_timer",
        "_transport",
        "connected_at",
        "first_byte_at",
        "headers",
        "heard_at",
        "status",
    )

    def __init__(self, backend: str, transport: asyncio.Transport, timeouts: Timeouts) -> None:
        self.status = 0
        self.headers: Headers = []
        self._backend = backend
        self._transport: asyncio.Transport | None = transport
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self.connected_at = monotonic()
        self.heard_at = self._loop.time()
        self.first_byte_at = 0.0
        self._sink: Sink | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._paused = False
        self._ended = False
        self._error: BaseException | None = None
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[None] | None = None
        first_wake = min(timeouts.first_token, timeouts.token_gap, timeouts.total)
        self._timer = self._loop.call_at(self.connected_at + first_wake, self._check_deadline)

    async def answered(self) -> None:
        """Wait for the head and the first byte, or the end, of the body.

        Raises the BackendError that prevented it. Cancelled, it closes the connection, which
        makes vLLM abort the request.
        """
        try:
            await self._answered
        except asyncio.CancelledError:
            self.abort()
            raise
        if self._error is not None and not self.first_byte_at:
            raise self._error

    async def relay(self, sink: Sink) -> None:
        """Write the body to `sink` as it arrives; return at its end.

        Bytes are written from within the socket's read callback: no task switch and no queue lies
        between the server and the sink. Raises a BackendError when the answer is cut short, and
        what the sink raised. In both cases, and when cancelled, the connection is closed.
        """
        try:
            self._release_held(sink)
            if not self._ended:
                self._done = self._loop.create_future()
                await self._done
        except BaseException:
            self.abort()
            raise
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Stop reading from the server; what was read already may still be written.

        No effect once the answer has ended.
        """
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on. The time spent paused is not held against the server."""
        if self._transport is not None and self._paused:
            self._paused = False
            self.heard_at = self._loop.time()
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection unless the answer has ended; a waiting `relay` raises."""
        self.fail(StreamBroken(self._backend, "aborted by the gateway"))

    def begin(self, status: int, headers: Headers) -> None:
        """The connection has parsed the head."""
        self.status = status
        self.headers = headers

    def receive(self, data: bytes) -> None:
        """The connection has parsed the next piece of the body."""
        self.heard_at = self._loop.time()
        if self._sink is not None:
            self._sink.write(data)
            return
        if self._ended:  # the rest of a read during which the sink aborted
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if not self.first_byte_at:
            self._first_byte()
        if self._held_bytes > HELD_BYTES:
            self.pause()

    def end(self) -> None:
        """The body is complete; the transport is the connection's again, in reading state."""
        if not self._ended:
            self.resume()
            if not self.first_byte_at:
                self._first_byte()
            self._finish(None)

    def fail(self, error: BaseException) -> None:
        """The answer cannot be completed: close the connection and tell who waits."""
        if not self._ended:
            transport = self._transport
            self._finish(error)
            if transport is not None:
                transport.abort()

    def _finish(self, error: BaseException | None) -> None:
        self._ended = True
        self._error = error
        self._transport = None
        self._timer.cancel()
        if error is not None:
            self._sink = None
        if not self._answered.done():
            self._answered.set_result(None)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _first_byte(self) -> None:
        self.first_byte_at = monotonic()
        if not self._answered.done():
            self._answered.set_result(None)

    def _release_held(self, sink: Sink) -> None:
        held: Sequence[bytes] = self._held
        self._held = []
        self._sink = sink
        self.resume()
        for data in held:
            if self._sink is not sink:  # it aborted
                return
            sink.write(data)

    def _due(self, now: float) -> tuple[float, type[PhaseTimeout]]:
        """When the exchange is too late if nothing more comes, and the error it then is."""
        limits = self._timeouts
        error: type[PhaseTimeout] = TokenGapTimeout
        if not self.first_byte_at:
            due, error = self.connected_at + limits.first_token, FirstTokenTimeout
        else:
            due = (now if self._paused else self.heard_at) + limits.token_gap
        total = self.connected_at + limits.total
        return (due, error) if due < total else (total, TotalTimeout)

    def _check_deadline(self) -> None:
        """Runs about once per `token_gap`, not once per chunk: chunks only move `heard_at`.

        It never sleeps for longer than a gap, so a first byte needs no new timer either: the
        first gap cannot end before the next look.
        """
        now = self._loop.time()
        due, error = self._due(now)
        if due > now:
            wake = min(due, now + self._timeouts.token_gap)
            self._timer = self._loop.call_at(wake, self._check_deadline)
        else:
            self.fail(error(self._backend, f"timed out in phase {error.phase}"))
