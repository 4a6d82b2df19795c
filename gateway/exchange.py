"""One request and its answer on a client connection, as the handlers see it.

The answer is written either whole (`respond`) or as a stream (`start`, `write`, `finish`). The
head of a stream is kept until its first byte of body, so that both leave in one segment and so
that nothing is promised before there is something to send.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from gateway.errors import ClientError, render_error
from gateway.http_types import Request, status_line

if TYPE_CHECKING:
    from asyncio import Task

Headers = Iterable[tuple[bytes, bytes]]


class Wire(Protocol):
    """What an exchange needs of its connection."""

    def send(self, data: bytes) -> None: ...

    def exchange_done(self, *, keep_alive: bool) -> None: ...

    def cut(self) -> None: ...

    @property
    def paused(self) -> bool: ...


class Flow(Protocol):
    """What is told when the client cannot take more bytes, and when it can again."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Exchange:
    """`gone` is true once the client has left; `started` once a byte of the answer was sent.
    `anthropic`: the client expects errors of Anthropic's shape; `named`: the headers that name a
    request which is answered whole."""

    __slots__ = (
        "_chunked",
        "_flow",
        "_head",
        "_wire",
        "anthropic",
        "gone",
        "http10",
        "keep_alive",
        "named",
        "request",
        "started",
        "task",
    )

    def __init__(self, wire: Wire, request: Request, *, keep_alive: bool, http10: bool) -> None:
        self._wire = wire
        self.request = request
        self.keep_alive = keep_alive
        self.http10 = http10
        self.started = False
        self.gone = False
        self.anthropic = False
        self.named: Headers = ()
        self._flow: Flow | None = None
        self.task: Task[None] | None = None
        self._head = b""
        self._chunked = False

    def respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Send a whole answer."""
        head = self._render_head(
            status, [*headers, *self.named, (b"content-length", b"%d" % len(body))]
        )
        self.started = True
        self._wire.send(head if self.request.method == "HEAD" else head + body)
        self._wire.exchange_done(keep_alive=self.keep_alive)

    def refuse(self, error: ClientError, headers: Headers = ()) -> None:
        """Send an error as the whole answer."""
        status, own, body = render_error(error, anthropic=self.anthropic)
        self.respond(status, body, [*own, *headers])

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        """Begin a stream of `length` bytes, or of unknown length. Sends nothing yet."""
        framing: tuple[bytes, bytes] | None = (b"transfer-encoding", b"chunked")
        if length is not None:
            framing = (b"content-length", b"%d" % length)
        elif self.http10:
            self.keep_alive, framing = False, None
        self._chunked = length is None and not self.http10
        self._head = self._render_head(status, [*headers, framing] if framing else headers)

    def write(self, data: bytes) -> None:
        if self._chunked:
            data = b"%b%x\r\n%b\r\n" % (self._head, len(data), data)
        elif self._head:
            data = self._head + data
        self._head = b""
        self.started = True
        self._wire.send(data)

    def finish(self, data: bytes = b"") -> None:
        """End a stream in good order; `data` is the last of its body, sent together with the end.

        Each send costs a system call and a segment, so what can leave together does.
        """
        if self._chunked:
            last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data = b"%b%b0\r\n\r\n" % (self._head, last)
        elif self._head:
            data = self._head + data
        self._head = b""
        self.started = True
        if data:
            self._wire.send(data)
        self._wire.exchange_done(keep_alive=self.keep_alive)

    def follow(self, flow: Flow) -> None:
        """Let the client's pace hold back `flow`, from now to the end of the exchange."""
        self._flow = flow
        if self._wire.paused:
            flow.pause()

    def pause(self) -> None:
        if self._flow is not None:
            self._flow.pause()

    def resume(self) -> None:
        if self._flow is not None:
            self._flow.resume()

    def abort(self) -> None:
        """Cut the connection: the only honest end for an answer that cannot be completed."""
        self._wire.cut()

    def _render_head(self, status: int, headers: Headers) -> bytes:
        lines = [status_line(status), *[b"%b: %b\r\n" % pair for pair in headers]]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        elif self.http10:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)
