"""Between a backend's stream and the client: heads, body bytes, and an honest end.

The body goes through unchanged and unparsed, but for what we asked for ourselves (`extras`). What
is kept is the last chunk, because an error that comes after the head may only be put between two
server-sent events.
"""

from backends.errors import BackendError
from backends.stream import Stream
from gateway.errors import ClientError, render_sse_error
from gateway.exchange import Exchange
from gateway.extras import Filter

# What the gateway says itself, or what belongs to the hop between it and the backend.
_OURS = frozenset(
    (b"content-length", b"transfer-encoding", b"connection", b"server", b"date", b"x-request-id")
)


class Relay:
    """Carries one answer; it is the sink that the backend's stream writes to."""

    __slots__ = ("_before_last", "_event_stream", "_exchange", "_held", "_last", "_stream")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._event_stream = False
        self._last = self._before_last = self._held = b""
        self._stream: Stream | None = None

    @property
    def tail(self) -> bytes:
        """The last bytes of the body: a stream's usage comes just before its `[DONE]`."""
        return self._before_last[-4096:] + self._last[-4096:]

    async def run(
        self, stream: Stream, extra: list[tuple[bytes, bytes]], through: Filter | None = None
    ) -> None:
        """Relay to the end, `through` a filter. Raises BackendError when the stream breaks."""
        headers = [pair for pair in stream.headers if pair[0] not in _OURS] + extra
        if stream.complete and through is None:
            self._last = stream.take()
            self._exchange.respond(stream.status, self._last, headers)
            return
        received = dict(stream.headers)
        length = received.get(b"content-length") if through is None else None
        self._event_stream = received.get(b"content-type", b"").startswith(b"text/event-stream")
        self._exchange.start(stream.status, headers, length=None if length is None else int(length))
        self._stream = stream
        self._exchange.follow(stream)
        if through is None:
            await stream.relay(self)
        else:
            await self._filter(stream, through)
        self._exchange.finish(self._held)

    async def _filter(self, stream: Stream, through: Filter) -> None:
        through.sink = self
        try:
            await stream.relay(through)
        except BackendError:
            through.finish(whole=False)
            raise
        through.finish(whole=True)

    def write(self, data: bytes) -> None:
        self._before_last, self._last = self._last, data
        if self._stream is not None and self._stream.complete:
            self._held += data  # it leaves with the end
        else:
            self._exchange.write(data)

    def fail(self, error: ClientError, request_id: str) -> None:
        """Tell the client of an error: as the answer while nothing was sent, then as an event
        where there are events, else by cutting the connection: half an answer must not look
        whole."""
        if self._held:  # the answer was complete when the error came
            self._exchange.finish(self._held)
        elif not self._exchange.started:
            self._exchange.refuse(error, [(b"x-request-id", request_id.encode())])
        elif self._event_stream:
            between = b"" if self._last.endswith(b"\n\n") else b"\n\n"
            self._exchange.keep_alive = False
            self._exchange.finish(between + render_sse_error(error))
        else:
            self._exchange.abort()
