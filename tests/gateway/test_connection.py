"""The HTTP server over real sockets: what a client sends, byte by byte, and what it gets."""

import asyncio
import json

import pytest

from gateway.exchange import Exchange
from gateway.http_types import HttpLimits
from tests.backends.scripted import until
from tests.gateway.serving import POST, echo, serving


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_a_request_is_read_however_it_is_cut(size: int) -> None:
    async with serving(echo) as served:
        client = await served.connect()
        client.writer.get_extra_info("socket").setsockopt(6, 1, 1)  # TCP_NODELAY
        for start in range(0, len(POST), size):
            await client.send(POST[start : start + size])
            await asyncio.sleep(0)
        status, headers, body = await client.answer()
    assert (status, headers["x-method"], body) == (200, "post", b"hello")


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (b"application/json", memoryview),
        (b"multipart/form-data; boundary=x", bytes),
        (b"Multipart/Form-Data; boundary=x", bytes),
    ],
)
async def test_a_large_body_arrives_whole_whatever_its_kind(kind: bytes, held: type) -> None:
    seen: list[bytes] = []

    async def keep(exchange: Exchange) -> None:
        assert isinstance(exchange.request.body, held)
        seen.append(bytes(exchange.request.body))
        exchange.respond(200, b"")

    body = bytes(range(256)) * 6_000
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    async with serving(keep) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(head % (kind, len(body)) + body)
            assert (await client.answer())[0] == 200
    assert seen == [body, body]


async def test_a_body_that_is_only_announced_takes_no_room() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(POST.replace(b"length: 5", b"length: 60000000") + b"x" * 100_000)
        await until(lambda: any(c._body_size > 90_000 for c in served.server.connections))
        (connection,) = served.server.connections
        assert connection._large is None


async def test_a_chunked_request_body_is_joined() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        await client.send(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await client.answer())[2] == b"abcde"


async def test_a_connection_is_used_again_and_pipelined_requests_keep_their_order() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(POST.replace(b"hello", b"first") + POST.replace(b"hello", b"later"))
        assert [(await client.answer())[2] for _ in range(2)] == [b"first", b"later"]
        await client.send(POST)
        assert (await client.answer())[2] == b"hello"


async def test_http_1_0_and_connection_close_end_the_connection() -> None:
    async with serving(echo) as served:
        for request in (
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        ):
            client = await served.connect()
            await client.send(request)
            assert (await client.answer())[1]["connection"] == "close"
            assert await client.closed()


async def test_expect_100_continue_is_answered_before_the_body_is_sent() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(POST.replace(b"\r\n\r\nhello", b"\r\nexpect: 100-continue\r\n\r\n"))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hello")
        assert (await client.answer())[2] == b"hello"


async def stream_three(exchange: Exchange) -> None:
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    for part in (b"one", b"two", b"three"):
        exchange.write(part)
    exchange.finish()


async def test_a_stream_is_chunked_for_1_1_and_ends_with_the_connection_for_1_0() -> None:
    async with serving(stream_three) as served:
        client = await served.connect()
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.answer())[2] == b"onetwothree"
        old = await served.connect()
        await old.send(b"GET / HTTP/1.0\r\n\r\n")
        answer = await old.reader.read()
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"\r\n\r\nonetwothree")


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"NONSENSE\r\n\r\n", 400, None),
        (b"GET / HTTP/1.1\r\n\r\n", 400, None),
        (b"GET http://h:99999999/ HTTP/1.1\r\nhost: x\r\n\r\n", 400, None),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 2000 + b"\r\n\r\n", 431, None),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 2000, 431, None),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 101\r\n\r\n", 413, "body_too_large"),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n65\r\n" + b"z" * 101,
            413,
            "body_too_large",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            400,
            None,
        ),
    ],
)
async def test_what_cannot_be_read_is_refused_and_the_connection_closed(
    request_bytes: bytes, status: int, code: str | None
) -> None:
    async with serving(echo, HttpLimits(max_head=1024, max_body=100, linger=0.1)) as served:
        client = await served.connect()
        await client.send(request_bytes)
        got, headers, body = await client.answer()
        assert got == status
        assert headers["connection"] == "close"
        assert json.loads(body)["error"]["code"] == code
        assert await client.closed()


async def test_a_request_that_never_ends_is_refused_in_time() -> None:
    async with serving(echo, HttpLimits(read_timeout=0.2, linger=0.1)) as served:
        client = await served.connect()
        await client.send(POST[:-1])
        status, _, body = await client.answer()
        assert status == 408
        assert b"read_timeout" in body
        assert await client.closed()


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_request_that_drips_is_refused_in_time(part: str) -> None:
    body = POST.replace(b"length: 5", b"length: 500")
    limits = HttpLimits(read_timeout=0.3, linger=0.1)
    async with serving(echo, limits) as served:
        client = await served.connect()
        await client.send(body if part == "body" else b"POST / HTTP/1.1\r\nhost: ")
        answering = served.tasks.spawn("answer", client.answer())
        while not answering.done():
            await client.send(b"x")
            await asyncio.wait([answering], timeout=0.05)
        status, _, told = answering.result()
        assert (status, b"read_timeout" in told) == (408, True)
        assert await client.closed()


async def test_one_address_may_have_so_many_connections_and_gets_them_back_as_it_closes() -> None:
    limits = HttpLimits(max_connections_per_address=3, linger=0.1)
    async with serving(echo, limits) as served:
        held = [await served.connect() for _ in range(3)]
        for client in held:
            await client.send(POST)
            assert (await client.answer())[0] == 200
        for _ in range(5):
            refused = await served.connect()
            status, headers, body = await refused.answer()
            assert (status, headers["retry-after"]) == (429, "1")
            assert json.loads(body)["error"]["code"] == "too_many_connections"
            assert await refused.closed()
        held[0].writer.close()
        held[1].writer.transport.abort()
        await until(lambda: served.server.connections_of("127.0.0.1") == 1)
        for _ in range(2):
            client = await served.connect()
            await client.send(POST)
            assert (await client.answer())[0] == 200
    await until(lambda: served.server.connections_of("127.0.0.1") == 0)


async def test_an_idle_connection_is_closed() -> None:
    async with serving(echo, HttpLimits(idle_timeout=0.2)) as served:
        client = await served.connect()
        await client.send(POST)
        await client.answer()
        assert await client.closed()


async def test_a_client_that_leaves_cancels_its_exchange() -> None:
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    began = asyncio.Event()

    async def wait_for_ever(exchange: Exchange) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set_result(exchange.gone)

    async with serving(wait_for_ever) as served:
        client = await served.connect()
        await client.send(POST)
        await began.wait()
        client.writer.close()
        assert await ended is True


async def test_a_client_that_does_not_read_pauses_its_flow_and_is_cut_in_the_end() -> None:
    class Flow:
        def __init__(self) -> None:
            self.paused = asyncio.Event()

        def pause(self) -> None:
            self.paused.set()

        def resume(self) -> None: ...

    flow, gone = Flow(), asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.follow(flow)
        while not flow.paused.is_set():
            exchange.write(b"x" * 65536)
            await asyncio.sleep(0)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            gone.set()

    async with serving(flood, HttpLimits(stall_timeout=0.2)) as served:
        client = await served.connect()
        await client.send(POST)
        await asyncio.wait_for(flow.paused.wait(), 5)
        await asyncio.wait_for(gone.wait(), 5)


async def test_drain_lets_an_answer_finish_and_takes_no_new_connection() -> None:
    release, began = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        began.set()
        await release.wait()
        exchange.respond(200, b"done")

    async with serving(held) as served:
        client, idle = await served.connect(), await served.connect()
        await client.send(POST)
        await began.wait()
        draining = served.tasks.spawn("drain", served.server.drain(5.0))
        assert await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", served.port)
        release.set()
        assert (await client.answer())[2] == b"done"
        await draining
        assert await client.closed()


async def test_drain_cancels_what_outlasts_its_grace() -> None:
    began = asyncio.Event()

    async def for_ever(exchange: Exchange) -> None:
        began.set()
        await asyncio.get_running_loop().create_future()

    async with serving(for_ever) as served:
        client = await served.connect()
        await client.send(POST)
        await began.wait()
        await served.server.drain(0.05)
        assert not served.tasks
        assert await client.closed()
