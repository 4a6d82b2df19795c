"""A prompt of 10 MB is read, tokenized and sent on while the loop serves others: no long turn.

What a turn costs is counted in CPU time of the loop's thread, so that other work on the machine
does not count. The bound is generous; the figure is in docs/performance/overhead.md.
"""

import asyncio
import http.client
import socket
import sys
import time
from pathlib import Path

import orjson

from backends.client import Client
from backends.types import BackendSpec, Timeouts
from bench.fake_vllm.options import TOKENIZER
from gateway.connection import TURN
from gateway.exchange import Exchange
from gateway.http_types import HttpLimits
from gateway.relay import Relay
from gateway.server import HttpServer
from gateway.tasks import Tasks
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind, PoolSettings, TokenizerSource, Wanted

SIZE = 10_000_000
BOUND = 0.01
PATH = "/v1/chat/completions"


class Turns:
    """The loop's most costly turn, in seconds of its thread's CPU."""

    def __init__(self) -> None:
        self.most = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.most = max(self.most, now - self._last)
        self._last = now
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> float:
        self._handle.cancel()
        return self.most


def post(port: int, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", PATH, body)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


async def test_a_prompt_of_ten_megabytes_keeps_nobody_waiting(tmp_path: Path) -> None:
    words = "the water of the river turns " * (SIZE // 29)
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": words}]})
    tasks = Tasks()
    pool = TokenizerPool(PoolSettings(tmp_path, job_timeout=60.0), tasks.spawn)
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.overhead.engine"), stdout=asyncio.subprocess.PIPE
    )
    assert engine.stdout is not None
    upstream = orjson.loads(await engine.stdout.readline())["port"]
    client = Client(BackendSpec("b", f"http://127.0.0.1:{upstream}"))

    async def serve(exchange: Exchange) -> None:
        prompt = await pool.prepare(
            Kind.CHAT, exchange.request.body, wanted=Wanted(ids=True, text=False)
        )
        assert prompt.prompt_tokens > SIZE // 10
        stream = await client.open(PATH, prompt.body(ids=True), timeouts=Timeouts())
        await Relay(exchange).run(stream, [])

    server = HttpServer(serve, HttpLimits(), tasks.spawn)
    port = await server.listen("127.0.0.1", 0)
    try:
        await pool.start()
        await pool.add_model(TokenizerSource("m", TOKENIZER))
        turns = Turns()
        status, answer = await asyncio.to_thread(post, port, body)
        longest = turns.stop()
        print(f"longest turn: {longest * 1e3:.1f} ms of CPU")
        assert status == 200, answer
        assert longest < BOUND
    finally:
        await server.drain(0.0)
        await pool.stop()
        await client.close()
        engine.terminate()
        await engine.wait()
        await tasks.stop()


async def test_a_body_that_has_come_already_is_taken_in_a_piece_a_turn() -> None:
    """The event loop by itself would read all that the kernel has, in one turn."""
    tasks = Tasks()
    came: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(exchange: Exchange) -> None:
        came.set_result(len(exchange.request.body))
        exchange.respond(200, b"")

    server = HttpServer(serve, HttpLimits(), tasks.spawn)
    port = await server.listen("127.0.0.1", 0)
    sent = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (SIZE, b"x" * SIZE)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SIZE)
        client.connect(("127.0.0.1", port))
        client.setblocking(False)
        at = client.send(sent)  # before the server gets its turn
        rest = tasks.spawn("rest", asyncio.get_running_loop().sock_sendall(client, sent[at:]))
        turns = 0
        async with asyncio.timeout(30):
            while not came.done():
                await asyncio.sleep(0)
                turns += any(c.reading_since is not None for c in server.connections)
            await rest
        assert came.result() == SIZE
        assert turns >= SIZE // TURN // 2
        await server.drain(1.0)
    await tasks.stop()
