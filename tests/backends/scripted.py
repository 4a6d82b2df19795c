"""A scripted server on a real socket: the test says byte by byte what the wire carries."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from backends.types import BackendSpec

T = TypeVar("T")


def start(coroutine: Coroutine[None, None, T]) -> asyncio.Task[T]:
    """Run beside the test."""
    return asyncio.get_running_loop().create_task(coroutine)


async def until(condition: Callable[[], bool]) -> None:
    """Turn the loop until the condition holds; TimeoutError after 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - sockets and timers set no event for us
            await asyncio.sleep(0)


@dataclass
class Peer:
    """The server's end of one accepted connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(self) -> bytes:
        """Read one request; returns its body and keeps the whole in `requests`."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = await self.reader.readexactly(length)
        self.requests.append(head + body)
        return body

    async def say(self, *pieces: bytes) -> None:
        """Send each piece as a segment of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait until the client closed its end."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass
        self.gone.set()

    async def left(self) -> None:
        """Wait until the script saw the client close; well before any default deadline does."""
        async with asyncio.timeout(10):
            await self.gone.wait()


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Scripted:
    """A listening server and the connections that it accepted so far."""

    port: int
    peers: list[Peer]
    accepted: asyncio.Condition

    def spec(self, name: str = "b1", **more: object) -> BackendSpec:
        return BackendSpec(name=name, url=f"http://127.0.0.1:{self.port}", **more)  # type: ignore[arg-type]

    async def peer(self, number: int = 0) -> Peer:
        """The connection accepted as the `number`-th, waiting for it if need be."""
        async with self.accepted:
            await self.accepted.wait_for(lambda: len(self.peers) > number)
        return self.peers[number]


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[Scripted]:
    """Serve each accepted connection by the script of its number (the last one repeats)."""
    served = Scripted(0, [], asyncio.Condition())

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        number = len(served.peers)
        async with served.accepted:
            served.peers.append(peer)
            served.accepted.notify_all()
        try:
            await scripts[min(number, len(scripts) - 1)](peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for peer in served.peers:
            peer.writer.transport.abort()
        closings = (peer.writer.wait_closed() for peer in served.peers)
        await asyncio.gather(*closings, return_exceptions=True)
        await server.wait_closed()


class Collector:
    """A sink that keeps what it got and tells when enough has come."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._arrived = asyncio.Event()

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def write(self, data: bytes, /) -> None:
        self.pieces.append(data)
        self._arrived.set()

    async def until(self, length: int) -> None:
        while len(self.data) < length:
            self._arrived.clear()
            await self._arrived.wait()


def unused_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def deaf_port() -> Iterator[int]:
    """A loopback port that answers no SYN: its listener's backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
