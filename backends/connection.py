"""One connection to a backend: bytes in, parsed by httptools, one exchange at a time.

Lives here: the asyncio protocol, the parser's callbacks, the framing rules, the bound on heads.
Not here: which connection serves a request (`client`) and what waits for the answer (`stream`).
"""

import asyncio
import socket
from typing import Protocol, cast

import httptools

from backends.errors import BadResponse, StreamBroken
from backends.stream import Headers, Stream
from backends.types import Timeouts

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""RFC 9110 §7.6.1: they speak of one connection and end at it."""

JOIN_BYTES = 65_536
"""Bodies up to this size travel in one write with their head, at the price of one copy."""


class Owner(Protocol):
    """Who keeps the connections."""

    def freed(self, connection: "Connection", /) -> None:
        """The exchange ended cleanly and the server keeps the connection open."""

    def lost(self, connection: "Connection", /) -> None:
        """The socket is closed. Called exactly once per made connection."""


class Connection(asyncio.Protocol):
    """The protocol of one upstream socket. `answered`: bytes came since the last `send`."""

    def __init__(self, backend: str, owner: Owner, max_head: int) -> None:
        self.answered = False
        self.stream: Stream | None = None
        self._backend = backend
        self._owner = owner
        self._max_head = max_head
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._head_done = False
        self._until_close = False
        self._bodiless_bytes = 0

    @property
    def usable(self) -> bool:
        """Whether a request may be sent: idle, and not known to be closing."""
        return self.stream is None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, timeouts: Timeouts) -> Stream:
        """Write a request; the stream is what its answer comes by."""
        self.stream = stream = Stream(self._backend, self._transport, timeouts, self._loop)
        self.answered = False
        self._headers = []
        self._head_done = self._until_close = False
        self._bodiless_bytes = 0
        if len(body) <= JOIN_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        return stream

    def close(self) -> None:
        """Close at once; an exchange in progress fails with StreamBroken."""
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        # Both event loops set this today; 40 ms stalls are too costly to rest on a default.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self.answered = True
        self._bodiless_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(BadResponse(self._backend, f"not an HTTP response: {error}"))
        else:
            if self._pieces and self.stream is not None:
                self.stream.receive(self._whole_piece())
            elif self._bodiless_bytes > self._max_head:
                self._fail(BadResponse(self._backend, f"head over {self._max_head} bytes"))

    def eof_received(self) -> None:
        self._hung_up(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up(exc)
        self._owner.lost(self)

    # httptools' callbacks

    def on_message_begin(self) -> None:
        if self.stream is None:
            raise BadResponse(self._backend, "an answer that nothing asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))  # trailers, too, after the head was told of

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self.stream is None:
            return
        self._head_done = True
        headers, self._until_close = self._read_head()
        self.stream.begin(status, headers)

    def on_body(self, data: bytes) -> None:
        self._bodiless_bytes = 0
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        stream = self.stream
        if stream is None:
            return
        if self._parser.get_status_code() < 200:
            self._headers = []  # 100 and 103 announce the real answer
            return
        stream.end(self._whole_piece())
        self.stream = None
        # should_keep_alive is right only inside this callback; an answer that came before the
        # request was written out leaves the rest of the request in the way of the next one.
        if self._parser.should_keep_alive() and not self._transport.get_write_buffer_size():
            self._owner.freed(self)
        else:
            self._transport.abort()

    def _whole_piece(self) -> bytes:
        """What a read brought of the body, however many chunks it came in: each piece that is
        passed on costs the client a segment."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def _read_head(self) -> tuple[Headers, bool]:
        """The end-to-end headers, and whether the body ends with the connection (RFC 9112 §6.3)."""
        passed: Headers = []
        codings, named = [], []
        length = False
        for pair in self._headers:
            name, value = pair
            if name not in HOP_BY_HOP:
                length = length or name == b"content-length"
                passed.append(pair)
            elif name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"connection":
                named += [token.strip().lower() for token in value.split(b",")]
        if codings and codings != [b"chunked"]:
            raise BadResponse(self._backend, "a transfer coding other than chunked")
        if named:
            passed = [pair for pair in passed if pair[0] not in named]
        return passed, not codings and not length

    def _hung_up(self, exc: Exception | None) -> None:
        stream, self.stream = self.stream, None
        if stream is None:
            return
        if exc is None and self._head_done and self._until_close:
            stream.end()
        else:
            stream.fail(StreamBroken(self._backend, f"connection lost: {exc or 'closed'}"))

    def _fail(self, cause: BaseException) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.fail(cause)
        self._transport.abort()
