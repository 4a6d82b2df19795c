"""A client under test, and answers that scripted servers give it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backends.client import Client, ClientLimits
from backends.stream import Stream
from backends.types import Timeouts
from tests.backends.scripted import (
    Collector,
    Peer,
    Script,
    Scripted,
    serving,
)

PATIENT = Timeouts()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Id: 7\r\n\r\n"


@asynccontextmanager
async def client_of(
    *scripts: Script, limits: ClientLimits | None = None
) -> AsyncIterator[tuple[Client, Scripted]]:
    async with serving(*scripts) as served:
        client = Client(served.spec(), limits)
        try:
            yield client, served
        finally:
            await client.close()
            assert repr(client).startswith("<Client b1 busy=0 idle=0 connecting=0")


async def ask(client: Client, timeouts: Timeouts = PATIENT, body: bytes = b"{}") -> Stream:
    return await client.open("/v1/chat/completions", body, timeouts=timeouts)


async def body_of(stream: Stream) -> bytes:
    sink = Collector()
    await stream.relay(sink)
    return sink.data


def answering(*pieces: bytes, then: str = "wait") -> Script:
    """A script that gives the same answer to each request of its connection."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*pieces)
            if then == "close":
                return
            if then == "reset":
                await peer.reset()
                return

    return script


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.until_gone()


def sized(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), extra, body)
