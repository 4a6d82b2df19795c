"""One upstream exchange, from the sent request to the end of the answer's body.

Lives here: the waiting, the deadlines, the hand-over of body bytes. Not here: sockets, HTTP
parsing and the pool (`connection`, `client`), when deadlines are looked at (`deadlines`), and any
look into the body.
"""

import asyncio
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
    `complete` is true from the moment at which the last piece of a whole body is written.
    """

    __slots__ = (
        "_backend",
        "_ended",
        "_error",
        "_held",
        "_held_bytes",
        "_loop",
        "_paused",
        "_sink",
        "_timeouts",
        "_transport",
        "_waiter",
        "complete",
        "connected_at",
        "first_byte_at",
        "headers",
        "heard_at",
        "status",
    )

    def __init__(
        self,
        backend: str,
        transport: asyncio.Transport,
        timeouts: Timeouts,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.status = 0
        self.headers: Headers = []
        self._backend = backend
        self._transport: asyncio.Transport | None = transport
        self._timeouts = timeouts
        self._loop = loop
        self.connected_at = monotonic()
        self.heard_at = loop.time()
        self.first_byte_at = 0.0
        self._sink: Sink | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._paused = False
        self._ended = self.complete = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def answered(self) -> None:
        """Wait for the head and the first byte, or the end, of the body.

        Raises the BackendError that prevented it. Cancelled, it closes the connection, which
        makes vLLM abort the request.
        """
        if not self._ended and not self.first_byte_at:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
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
                self._waiter = self._loop.create_future()
                await self._waiter
        except BaseException:
            self.abort()
            raise
        if self._error is not None:
            raise self._error

    def take(self) -> bytes:
        """The body of an answer that is complete and was not relayed: all that remains to do."""
        held, self._held = self._held, []
        return b"".join(held)

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
            self._write(self._sink, data)
            return
        if self._ended:  # the rest of a read during which the sink aborted
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if not self.first_byte_at:
            self.first_byte_at = monotonic()
            self._wake()
        if self._held_bytes > HELD_BYTES:
            self.pause()

    def end(self, data: bytes = b"") -> None:
        """The body is complete with this last piece of it, if there is one. The transport is the
        connection's again, in reading state."""
        self.complete = not self._ended
        if data:
            self.receive(data)
        if not self._ended:
            if self._paused:
                self.resume()
            if not self.first_byte_at:
                self.first_byte_at = monotonic()
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
        if error is not None:
            self._sink = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _release_held(self, sink: Sink) -> None:
        self._sink = sink
        self.resume()
        if data := self.take():
            sink.write(data)

    def _write(self, sink: Sink, data: bytes) -> None:
        try:
            sink.write(data)
        except Exception as error:  # noqa: BLE001 - a callback's edge: `relay` raises it
            self.fail(error)

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

    def look(self, now: float) -> float:
        """Fail when it is too late; returns when to look next, at the latest.

        That is never further off than a gap, so neither chunks nor the first byte need to tell
        anybody: the first gap cannot end before the next look.
        """
        due, error = self._due(now)
        if due <= now and not self._ended:
            self.fail(error(self._backend, f"timed out in phase {error.phase}"))
        return min(due, now + self._timeouts.token_gap)
