"""Between a backend's stream and the client: heads, body bytes, and an honest end.

The body goes through unchanged and unparsed, but for what we asked for ourselves (`extras`). What
is kept is the last chunk, because an error that comes after the head may only be put between two
server-sent events.
"""

from time import monotonic

from backends.errors import BackendError
from backends.stream import Stream
from gateway.errors import NO_RETRY, ClientError, render_sse_error, sse_error
from gateway.exchange import Exchange
from gateway.extras import Filter
from gateway.pace import Pace

# What the gateway says itself, or what belongs to the hop between it and the backend.
_OURS = frozenset(
    (b"content-length", b"transfer-encoding", b"connection", b"server", b"date", b"x-request-id")
)


_EVENT_STREAM = b"text/event-stream"


class Relay:
    """Carries one answer; it is the sink that the backend's stream writes to. `begun`: there is an
    answer of a backend to carry."""

    __slots__ = (
        "_before_last",
        "_event_stream",
        "_exchange",
        "_held",
        "_last",
        "_stream",
        "begun",
        "pace",
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.begun = False
        self._event_stream = False
        self._last = self._before_last = self._held = b""
        self._stream: Stream | None = None
        self.pace = Pace()

    @property
    def tail(self) -> bytes:
        """The last bytes of the body: a stream's usage comes just before its `[DONE]`."""
        return self._before_last[-4096:] + self._last[-4096:]

    async def run(
        self, stream: Stream, extra: list[tuple[bytes, bytes]], through: Filter | None = None
    ) -> None:
        """Relay to the end, `through` a filter. Raises BackendError when the stream breaks."""
        self.begun = True
        if self._exchange.started:
            await self._go_on(stream, through)
            return
        headers = [pair for pair in stream.headers if pair[0] not in _OURS] + extra
        if stream.status == 501:  # the model does not do this: no server of it will
            headers.append(NO_RETRY)
        if stream.complete and through is None:
            self._last = stream.take()
            self._exchange.respond(stream.status, self._last, headers)
            return
        received = dict(stream.headers)
        length = received.get(b"content-length") if through is None else None
        self._event_stream = received.get(b"content-type", b"").startswith(_EVENT_STREAM)
        self._exchange.start(stream.status, headers, length=None if length is None else int(length))
        self._stream = stream
        self._exchange.follow(stream)
        if through is None:
            await stream.relay(self)
        else:
            await self._filter(stream, through)
        self._exchange.finish(self._held)

    def comment(self, comment: bytes, request_id: str) -> None:
        """Begin a stream before there is one, or keep it alive, by a comment in it."""
        if not self._exchange.started:
            self._event_stream = True
            kind = (b"content-type", _EVENT_STREAM + b"; charset=utf-8")
            self._exchange.start(200, [kind, (b"x-request-id", request_id.encode())])
        self._last = comment
        self._exchange.write(comment)

    async def _go_on(self, stream: Stream, through: Filter | None) -> None:
        """Carry the answer in the stream that comments have begun; an error becomes an event."""
        self._exchange.follow(stream)
        if dict(stream.headers).get(b"content-type", b"").startswith(_EVENT_STREAM):
            await (stream.relay(self) if through is None else self._filter(stream, through))
            self._exchange.finish()
            return
        kept = _Kept()
        await stream.relay(kept)
        self._exchange.keep_alive = False
        self._exchange.finish(sse_error(kept.data, anthropic=self._exchange.anthropic))

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
        self.pace.came(data, monotonic())
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
            event = render_sse_error(error, anthropic=self._exchange.anthropic)
            self._exchange.finish(between + event)
        else:
            self._exchange.abort()


class _Kept:
    """A sink for the error of a backend."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, /) -> None:
        self.data += data
