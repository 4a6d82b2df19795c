"""One client connection: an asyncio protocol around httptools' parser (llhttp).

It reads whole requests within the limits, runs one exchange at a time, and turns a lost
connection into the cancellation of the exchange's task. What to answer is not decided here,
except for requests that cannot be read at all.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import httptools

from gateway.errors import ClientError, render_error
from gateway.exchange import Exchange
from gateway.http_types import Request
from gateway.upgrade import may_be_ignored, plain_head
from tokenizer_pool.memory import room

if TYPE_CHECKING:
    from gateway.server import HttpServer


LARGE_BODY = 256 * 1024
"""Longer bodies are written to their place as they come: joined at the end, 10 MB would take one
turn of the loop some milliseconds. Whoever gets them must not mind that they are a memoryview:
forms, which are taken apart, stay bytes."""

TURN = 256 * 1024
"""When so many bytes of a body were taken in, others get their turn: left to itself, the event loop
reads on for as long as there is something to read, up to 8 MB."""


class Connection(asyncio.Protocol):
    """The asyncio and httptools callbacks of one connection."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._limits = server.limits
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Exchange] = deque()
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._large: memoryview | None = None
        self._length = 0
        self._body_size = 0
        self._rest_at = TURN
        self._beside_body = 0
        self._reading_head = True
        self._upgrading = False
        self._arrived = 0.0
        self._closing = False
        self._refusal: ClientError | None = None
        self._address: str | None = None
        self.exchange: Exchange | None = None
        self.reading_since: float | None = None
        self.idle_since: float | None = monotonic()
        self.stalled_since: float | None = None
        self.refused_at: float | None = None

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        peer = transport.get_extra_info("peername")  # None when it has left already
        address = str(peer[0]) if peer else ""
        if self._server.admit(address):
            self._address = address
        else:
            self.idle_since = None
            self._refuse(_too_many())

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._address is not None:
            self._server.gone(self._address)
        self._transport = None
        self._waiting.clear()
        # The parser refers to us: bodies must not wait for the collector to find that out.
        self._begin_reading()
        del self._parser
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.gone = True
            if exchange.task is not None:
                exchange.task.cancel()

    def pause_writing(self) -> None:
        self.stalled_since = monotonic()
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self.stalled_since = None
        if self.exchange is not None:
            self.exchange.resume()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._beside_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_plainly(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, ClientError):
                raise
            self._refuse(error.__context__)
        except httptools.HttpParserError as error:
            self._refuse(ClientError(400, f"this is not valid HTTP/1.1: {error}"))
        else:
            if self._beside_body > self._limits.max_head:
                self._refuse(_head_too_large())

    # httptools' callbacks

    def on_message_begin(self) -> None:
        self._arrived = monotonic()
        self.idle_since = None
        if self.exchange is None:
            self.reading_since = self._arrived

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading_head:  # what trails a body must not replace what was said before it
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._reading_head = False
        headers, limits = self._headers, self._limits
        if self._parser.should_upgrade():
            if not may_be_ignored(self._parser.get_method(), headers):
                raise ClientError(400, "Forebay speaks HTTP/1.1 only; leave the upgrade header out")
            self._upgrading = True
            return
        # What was read so far has a part of the body, too: only when it is much, heads are summed.
        if self._beside_body > limits.max_head and (
            sum(len(name) + len(value) for name, value in headers.items()) > limits.max_head
        ):
            raise _head_too_large()
        if b"host" not in headers and self._parser.get_http_version() == "1.1":
            raise ClientError(400, "HTTP/1.1 requests must have a host header; send one")
        length = int(headers.get(b"content-length", b"0"))
        if length > limits.max_body:
            raise self._too_large()
        if length > LARGE_BODY and not _is_form(headers):
            self._length = length
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._ask_for_body()

    def on_body(self, data: bytes) -> None:
        self._beside_body = 0
        self._body_size += len(data)
        if self._body_size > self._limits.max_body:
            raise self._too_large()
        if self._large is not None:
            self._large[self._body_size - len(data) : self._body_size] = data
        else:
            self._body.append(data)
            if self._length and self._body_size > LARGE_BODY:
                self._make_room()
        if self._body_size > self._rest_at:
            self._rest()

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        if len(self._waiting) >= self._limits.max_pipelined:
            raise ClientError(429, "too many pipelined requests on one connection")
        parser = self._parser
        keep_alive = parser.should_keep_alive() and not self._server.draining
        http10 = parser.get_http_version() == "1.0"
        exchange = Exchange(self, self._request(), keep_alive=keep_alive, http10=http10)
        self._begin_reading()
        if self.exchange is None:
            self._run(exchange)
        else:
            self._waiting.append(exchange)

    # what exchanges and the server ask for

    @property
    def paused(self) -> bool:
        return self.stalled_since is not None

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def exchange_done(self, *, keep_alive: bool) -> None:
        self.exchange = None
        if self._transport is None:
            return
        if not keep_alive or self._server.closed:
            self.close()
        elif self._waiting:
            self._run(self._waiting.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self._arrived:  # the next request has begun: it has its time from now on
            self.reading_since = monotonic()
        else:
            self.idle_since = monotonic()

    def close(self) -> None:
        """Close when what was written has been sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Close now, dropping what was not sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def refuse_slow_request(self) -> None:
        self._refuse(ClientError(408, "the request was not completed in time", code="read_timeout"))

    # the rest

    def _run(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._server.run(exchange)

    def _begin_reading(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []
        self._large = None
        self._length = 0
        self._body_size = self._beside_body = 0
        self._rest_at = TURN
        self._reading_head = True
        self._arrived = 0.0
        self.reading_since = None

    def _request(self) -> Request:
        """What was read, up to now."""
        path, query = _target(self._url)
        return Request(
            self._parser.get_method().decode(),
            path,
            self._headers,
            b"".join(self._body) if self._large is None else cast("bytes", self._large),
            self._arrived,
            monotonic(),
            query,
        )

    def _read_plainly(self, rest: bytes) -> None:
        """Read a request again that offered another protocol, without that offer."""
        head = plain_head(self._parser.get_method(), self._url, self._headers)
        self._upgrading = False
        self._begin_reading()
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _ask_for_body(self) -> None:
        """Unless it would come amid the answer before it, or to a client that does not know it."""
        if self.exchange is None and self._parser.get_http_version() != "1.0":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _make_room(self) -> None:
        """For the whole of a large body, once some of it has come."""
        self._large = room(self._length)
        self._large[: self._body_size] = b"".join(self._body)
        self._body = []

    def _rest(self) -> None:
        """Read on in the loop's next turn."""
        self._rest_at = self._body_size + TURN
        if self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _too_large(self) -> ClientError:
        limit = self._limits.max_body
        return ClientError(
            413, f"the request body is larger than {limit} bytes", code="body_too_large"
        )

    def _refuse(self, error: ClientError) -> None:
        """Answer a request that cannot be read, after those before it, then take no more from this
        connection.

        The connection stays open for a moment, so that a client that is still sending gets to
        read the answer instead of a reset.
        """
        self._closing = True
        self.reading_since = None
        if self._transport is None:
            return
        if self.exchange is not None:
            self._refusal = error
            return
        self.refused_at = monotonic()
        answer = Exchange(self, self._unread(), keep_alive=False, http10=False)
        self._server.mark(answer)
        status, headers, body = render_error(error, anthropic=answer.anthropic)
        answer.start(status, [*headers, *answer.named], length=len(body))
        answer.write(body)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _unread(self) -> Request:
        """As much as is known of a request that is refused."""
        path, headers = "", {}
        if not self._reading_head:
            with suppress(ClientError):
                path, headers = _target(self._url)[0], self._headers
        return Request("POST", path, headers, b"", self._arrived, monotonic())


@lru_cache(maxsize=256)  # clients ask for a few paths, over and over
def _target(url: bytes) -> tuple[str, str]:
    """Its path and its query."""
    try:
        parsed: Any = httptools.parse_url(url)  # its stubs do not say that parts may be missing
        return (parsed.path or b"").decode("latin-1"), (parsed.query or b"").decode("latin-1")
    except httptools.HttpParserInvalidURLError as error:
        raise ClientError(400, "the request's target is not a valid URL") from error


def _is_form(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"")[:9].lower() == b"multipart"


def _head_too_large() -> ClientError:
    return ClientError(431, "the request's headers are too large; send fewer or shorter ones")


def _too_many() -> ClientError:
    message = "too many connections from your address; close some, or wait, and connect again"
    return ClientError(429, message, code="too_many_connections", retry_after=1.0)
