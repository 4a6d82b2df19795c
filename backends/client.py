"""The upstream HTTP/1.1 client of one backend: its connections, and how a request gets one.

Lives here: the pool, the one retry on a connection that died while idle, request heads. Not here:
parsing (`connection`), waiting and relaying (`stream`), retries to another backend (the gateway),
and what the answers mean (`probe`, `warm`).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

from backends.connection import Connection
from backends.deadlines import Deadlines
from backends.errors import ConnectFailed, ConnectionsExhausted, ConnectTimeout, StreamBroken
from backends.patience import Patience
from backends.stream import Stream
from backends.types import BackendSpec, Timeouts

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one backend's connections.

    `connections` counts all open ones; the scheduler's limits are meant to bind long before.
    `idle` is how long an unused one is kept, in seconds: less than vLLM's own 5 s
    (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), so that we close first and no request meets a closed one.
    `spare` unused ones are kept by `renew`, younger than that. `head` bounds a response head, in
    bytes.
    """

    connections: int = 1024
    idle: float = 4.0
    spare: int = 2
    head: int = 65_536


class Client:
    """Opens exchanges with one backend over pooled connections. `repr` shows the counts.

    `on_answer` may be set to be told the status of each answer that begins.
    """

    def __init__(self, spec: BackendSpec, limits: ClientLimits | None = None) -> None:
        """Raises ValueError when `spec.url` is not http(s)://host[:port] without a path."""
        url = urlsplit(spec.url)
        if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/"):
            raise ValueError(f"backend {spec.name}: not http(s)://host[:port]: {spec.url!r}")
        self.spec = spec
        self.on_answer: Callable[[int], None] = _ignore
        self.connects = 0
        self.reuses = 0
        self.stale_retries = 0
        self.limits = limits or ClientLimits()
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if url.scheme == "https" else None
        fixed = [("host", url.netloc.rpartition("@")[2])]
        if spec.api_key is not None:
            fixed.append(("authorization", f"Bearer {spec.api_key}"))
        self._fixed_headers = _lines(fixed)
        self._deadlines = Deadlines(self._under_way)
        self._busy: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # oldest first, with the time it became idle
        self._connecting = 0
        self._heard_at = self._used_at = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        self._unused: asyncio.Event | None = None

    def __repr__(self) -> str:
        return (
            f"<Client {self.spec.name} busy={len(self._busy)} idle={len(self._idle)} "
            f"connecting={self._connecting} connects={self.connects} reuses={self.reuses} "
            f"stale_retries={self.stale_retries}>"
        )

    @property
    def in_flight(self) -> int:
        """Exchanges that have or await a connection."""
        return len(self._busy) + self._connecting

    @property
    def idle_since(self) -> float | None:
        """The monotonic time when the last exchange began or ended; None while one is open."""
        return None if self.in_flight else self._used_at

    @property
    def heard_at(self) -> float:
        """The monotonic time when body bytes last came from this backend; 0 if never."""
        streams = (connection.stream for connection in self._busy)
        begun = (stream.heard_at for stream in streams if stream and stream.first_byte_at)
        return max(begun, default=self._heard_at)

    async def open(
        self,
        path: str,
        body: bytes,
        *,
        timeouts: Timeouts,
        headers: Sequence[tuple[str, str]] = (),
        method: str = "POST",
        content_type: str = JSON,
    ) -> Stream:
        """Send a request; return when the head and the first byte (or the end) of the body came.

        So a caller that got a BackendError from here may still try elsewhere: the client has seen
        nothing. `headers` are added to host, content-type and content-length, and must not repeat
        them; an authorization gives way to the backend's own key. No HEAD.

        Raises BackendError, and ValueError for a line break in the path or a header. Cancelled in
        any phase, it closes the connection.
        """
        start = f"{method} {path} HTTP/1.1"
        head = self._head(start, len(body), headers, content_type=content_type)
        self._used_at = monotonic()
        connection, fresh = self._take_idle(), False
        while True:
            if connection is None:
                connection, fresh = await self._connect(timeouts), True
            stream = self._send(connection, (head, body), timeouts)
            try:
                await stream.answered()
            except StreamBroken:
                if fresh or connection.answered:
                    raise
                self.stale_retries += 1
                connection = None
            else:
                self.on_answer(stream.status)
                return stream

    async def renew(self, timeouts: Timeouts) -> None:
        """See to it that `ClientLimits.spare` connections will last for another half `idle`.

        Called that often, it spares every request the price of connecting. Raises ConnectError.
        """
        young = monotonic() - self.limits.idle / 2
        lasting = sum(since > young for since in self._idle.values())
        for _ in range(self.limits.spare - lasting):
            self._keep(await self._connect(timeouts))

    async def until_unused(self, within: float) -> bool:
        """Wait until no exchange is open; False when it took longer than so many seconds."""
        if not self.in_flight:
            return True
        if self._unused is None:
            self._unused = asyncio.Event()
        self._unused.clear()
        try:
            async with asyncio.timeout(within):
                await self._unused.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close every connection, in use or not, and wait until the sockets are gone."""
        if self._emptied is None:
            self._emptied = asyncio.Event()
        for connection in [*self._busy, *self._idle]:
            connection.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._deadlines.stop()
        if self._busy or self._idle:
            await self._emptied.wait()

    # connection.Owner

    def freed(self, connection: Connection) -> None:
        """Keep the connection for the next request."""
        self._busy.discard(connection)
        if self._unused is not None:
            self._note_unused()
        self._heard_at = self._used_at = monotonic()
        self._keep(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._busy.discard(connection)
        self._idle.pop(connection, None)
        self._note_unused()
        if self._emptied is not None and not self._busy and not self._idle:
            self._emptied.set()

    def _send(
        self, connection: Connection, request: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Stream:
        self._busy.add(connection)
        stream = connection.send(*request, timeouts)
        first_look = min(timeouts.first_token, timeouts.token_gap, timeouts.total)
        self._deadlines.watch(stream.connected_at + first_look)
        return stream

    def _under_way(self) -> Iterator[Stream]:
        return (connection.stream for connection in self._busy if connection.stream is not None)

    def _keep(self, connection: Connection) -> None:
        self._idle[connection] = monotonic()
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self.limits.idle, self._close_old)

    def _note_unused(self) -> None:
        if self._unused is not None and not self.in_flight:
            self._unused.set()

    def _take_idle(self) -> Connection | None:
        """The connection used last: the pool shrinks from its old end when load falls."""
        # Not the loop's clock, which stands still while something stalls the loop: the server's
        # does not.
        oldest = monotonic() - self.limits.idle
        while self._idle:
            connection, since = self._idle.popitem()
            if connection.usable and since > oldest:
                self.reuses += 1
                return connection
            self._busy.add(connection)  # until `lost`
            connection.close()
        return None

    def _close_old(self) -> None:
        now = monotonic()
        self._idle_timer = None
        for connection, since in list(self._idle.items()):
            if since > now - self.limits.idle:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(since + self.limits.idle - now, self._close_old)
                return
            connection.close()

    async def _connect(self, timeouts: Timeouts) -> Connection:
        name = self.spec.name
        if self.in_flight >= self.limits.connections:
            raise ConnectionsExhausted(name, f"{self.limits.connections} connections in use")
        self._connecting += 1
        try:
            async with Patience(timeouts.connect):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(name, self, self.limits.head),
                    self._host,
                    self._port,
                    ssl=self._ssl,
                )
        except TimeoutError as error:
            raise ConnectTimeout(name, f"no connection in {timeouts.connect} s") from error
        except OSError as error:
            raise ConnectFailed(name, f"cannot connect: {error}") from error
        finally:
            self._connecting -= 1
            self._note_unused()
        if self._emptied is not None:
            connection.close()
            raise ConnectFailed(name, "the client was closed")
        self.connects += 1
        return connection

    def _head(
        self, start: str, length: int, extra: Sequence[tuple[str, str]], *, content_type: str
    ) -> bytes:
        if self.spec.api_key is not None:
            extra = [pair for pair in extra if pair[0].lower() != "authorization"]
        own = _lines(extra) if extra else ""
        framing = f"content-type: {content_type}\r\ncontent-length: {length}\r\n"
        if "\r" in start or "\n" in start or framing.count("\r") + framing.count("\n") != 4:
            raise ValueError("a line break in the path or the content type")
        head = f"{start}\r\n{self._fixed_headers}{framing}{own}\r\n"
        return head.encode("latin-1")


def _ignore(_status: int) -> None:
    """Nobody wants to be told."""


def _lines(headers: Sequence[tuple[str, str]]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\r") != len(headers) or lines.count("\n") != len(headers):
        raise ValueError("a line break in a header")
    return lines
