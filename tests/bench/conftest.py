"""A simulated server in this loop, and a client for it."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from bench.fake_vllm import Options, Running, running


@dataclass(frozen=True)
class Fake:
    """A running server and a session that has its address."""

    server: Running
    http: aiohttp.ClientSession
    stop: Callable[[], Awaitable[None]]
    """End the server before the block ends."""

    async def post(self, path: str, **body: Any) -> Any:
        async with self.http.post(path, json=body) as response:
            return await response.json()

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a streamed answer; the last is "[DONE]" as text."""
        async with self.http.post(path, json=body | {"stream": True}) as response:
            return parse_events(await response.read())


def parse_events(body: bytes) -> list[Any]:
    data = [part.removeprefix(b"data: ") for part in body.split(b"\n\n") if part]
    return [part.decode() if part == b"[DONE]" else orjson.loads(part) for part in data]


MakeFake = Callable[..., AbstractAsyncContextManager[Fake]]


@asynccontextmanager
async def make_fake(**options: Any) -> AsyncIterator[Fake]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(Options(**options)))
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        yield Fake(server, http, stack.aclose)


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with make_fake() as one:
        yield one
