"""An HTTP server whose handler is a test's, and a client that sends bytes as it likes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.exchange import Exchange
from gateway.http_types import HttpLimits
from gateway.server import HttpServer
from gateway.tasks import Tasks

POST = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        else:
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@dataclass
class Served:
    server: HttpServer
    port: int
    tasks: Tasks
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client


Handler = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def serving(
    handler: Handler,
    limits: HttpLimits | None = None,
    mark: Callable[[Exchange], None] = lambda _exchange: None,
) -> AsyncIterator[Served]:
    tasks = Tasks()
    server = HttpServer(handler, limits or HttpLimits(), tasks.spawn, mark)  # type: ignore[arg-type]
    served = Served(server, await server.listen("127.0.0.1", 0), tasks)
    try:
        yield served
    finally:
        for client in served.clients:
            client.writer.close()
        await server.drain(1.0)
        await tasks.stop()
        assert tasks.failed == 0


async def echo(exchange: Exchange) -> None:
    exchange.respond(200, exchange.request.body, [(b"x-method", exchange.request.method.encode())])
