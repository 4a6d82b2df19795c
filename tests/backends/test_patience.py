"""A stall of our own event loop is not held against a backend."""

import asyncio
import http.server
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

from backends.client import Client
from backends.errors import NotServing
from backends.patience import Patience
from backends.probe import Probe
from backends.types import BackendSpec, Timeouts
from tests.backends.scripted import deaf_port, start, until

LIMIT = 0.12
LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class _Version(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "17")
        self.end_headers()
        self.wfile.write(b'{"version": "1"}\n')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def server_of_its_own() -> Iterator[BackendSpec]:
    """A server that answers also while the test's event loop stands still."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Version)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield BackendSpec("b1", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(new_loop: NewLoop, test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@LOOPS
def test_a_connection_that_was_made_while_the_loop_stood_still_is_no_timeout(
    new_loop: NewLoop,
) -> None:
    async def test() -> None:
        with server_of_its_own() as spec:
            client = Client(spec)
            asking = start(
                client.open("/version", b"", timeouts=Timeouts(connect=LIMIT), method="GET")
            )
            await until(lambda: client.in_flight == 1)
            time.sleep(3 * LIMIT)  # noqa: ASYNC251 - the stall that this is about
            assert (await asking).status == 200
            await client.close()

    run(new_loop, test)


@LOOPS
def test_an_answer_that_came_while_the_loop_stood_still_is_no_timeout(new_loop: NewLoop) -> None:
    async def test() -> None:
        with server_of_its_own() as spec:
            async with Probe(spec, timeout=LIMIT) as probe:
                asking = start(probe.version())
                await asyncio.sleep(0)
                time.sleep(3 * LIMIT)  # noqa: ASYNC251
                assert await asking == "1"

    run(new_loop, test)


async def test_a_server_that_does_not_answer_is_a_timeout_all_the_same() -> None:
    with deaf_port() as port:
        async with Probe(BackendSpec("b1", f"http://127.0.0.1:{port}"), timeout=LIMIT) as probe:
            began = time.monotonic()
            with pytest.raises(NotServing, match="no answer in time"):
                await probe.version()
            assert LIMIT <= time.monotonic() - began < 3 * LIMIT


async def test_a_loop_that_stalls_for_ever_does_not_make_patience_endless() -> None:
    async def stalls() -> None:
        while True:
            time.sleep(0.15)  # noqa: ASYNC251
            await asyncio.sleep(0)

    stalling = start(stalls())
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with Patience(LIMIT):
            await asyncio.Event().wait()
    assert 4 * LIMIT <= time.monotonic() - began < 8 * LIMIT
    stalling.cancel()


async def test_what_is_done_in_time_is_left_alone() -> None:
    async with Patience(0.05):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
