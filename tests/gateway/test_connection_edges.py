"""What lies between requests on one connection, and beside them: nothing of it disturbs another."""

import asyncio
import gc
import json
import weakref

import pytest

from gateway.exchange import Exchange
from gateway.http_types import HttpLimits
from tests.backends.scripted import until
from tests.gateway.serving import POST, Served, echo, serving

CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\nx-who: head\r\ntransfer-encoding: chunked\r\n\r\n"
EXPECTS = POST.replace(b"\r\n\r\nhello", b"\r\nexpect: 100-continue\r\n\r\n")


class Held:
    """A handler that answers when it is let."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.began = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.began.set()
        await self.release.wait()
        await echo(exchange)


async def test_too_many_pipelined_requests_are_refused_after_those_before_them() -> None:
    held = Held()
    async with serving(held, HttpLimits(max_pipelined=2, linger=0.1)) as served:
        client = await served.connect()
        await client.send(POST * 5)
        await held.began.wait()
        held.release.set()
        answers = [await client.answer() for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 429]
        assert await client.closed()


@pytest.mark.parametrize("rubbish", [b"\0rubbish\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_cannot_be_read_behind_a_request_does_not_cut_its_answer(rubbish: bytes) -> None:
    held = Held()
    async with serving(held, HttpLimits(linger=0.1)) as served:
        client = await served.connect()
        await client.send(POST + rubbish)
        await held.began.wait()
        held.release.set()
        answers = [await client.answer() for _ in range(2)]
        assert [status for status, _, _ in answers] == [200, 400]
        assert await client.closed()


async def test_an_empty_line_behind_a_request_begins_no_other_one() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(POST)
        await client.answer()
        (connection,) = served.server.connections
        await client.send(b"\r\n")
        await until(lambda: connection._beside_body == 2)
        assert connection.reading_since is None
        assert connection.idle_since is not None
        await client.send(POST)
        assert (await client.answer())[0] == 200


async def test_a_request_has_its_time_from_the_end_of_the_answer_before_it() -> None:
    held = Held()
    async with serving(held, HttpLimits(read_timeout=0.2, linger=0.1)) as served:
        client = await served.connect()
        await client.send(POST + POST[:20])
        await held.began.wait()
        (connection,) = served.server.connections
        await until(lambda: connection._arrived > 0)
        assert connection.reading_since is None
        held.release.set()
        answers = [await client.answer() for _ in range(2)]
        assert [status for status, _, _ in answers] == [200, 408]


async def test_100_continue_is_not_said_amid_the_answer_before_it() -> None:
    held = Held()
    async with serving(held) as served:
        client = await served.connect()
        await client.send(POST + EXPECTS + b"later")
        await held.began.wait()
        held.release.set()
        assert [(await client.answer())[2] for _ in range(2)] == [b"hello", b"later"]


async def test_100_continue_is_not_said_to_a_client_that_does_not_know_it() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(EXPECTS.replace(b"HTTP/1.1", b"HTTP/1.0") + b"hello")
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 200")


async def test_what_trails_a_body_replaces_no_header() -> None:
    async def who(exchange: Exchange) -> None:
        exchange.respond(200, exchange.request.headers[b"x-who"])

    async with serving(who) as served:
        client = await served.connect()
        await client.send(CHUNKED + b"3\r\nabc\r\n0\r\nx-who: trailer\r\n\r\n")
        assert (await client.answer())[2] == b"head"
        await client.send(CHUNKED + b"0\r\n\r\n")
        assert (await client.answer())[2] == b"head"


@pytest.mark.parametrize("beside", [b"0\r\n" + b"x: y\r\n" * 1000, b"3;" + b"z" * 5000])
async def test_what_comes_beside_a_body_is_bounded(beside: bytes) -> None:
    async with serving(echo, HttpLimits(max_head=1024, linger=0.1)) as served:
        client = await served.connect()
        await client.send(CHUNKED + b"3\r\nabc\r\n")
        await until(lambda: any(c._body_size == 3 for c in served.server.connections))
        await client.send(beside)
        assert (await client.answer())[0] == 431
        assert await client.closed()


@pytest.mark.parametrize("size", [7, 10_000])
async def test_an_offer_of_another_protocol_is_passed_over(size: int) -> None:
    """As Java's own client makes one with its first request, and `curl --http2`."""
    offer = b"\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AA"
    offering = POST.replace(b"\r\n\r\n", offer + b"\r\n\r\n")
    async with serving(echo) as served:
        client = await served.connect()
        sent = offering + POST.replace(b"hello", b"again")
        for start in range(0, len(sent), size):
            await client.send(sent[start : start + size])
        answers = [await client.answer() for _ in range(2)]
        assert [(status, body) for status, _, body in answers] == [(200, b"hello"), (200, b"again")]
        assert all("upgrade" not in headers for _, headers, _ in answers)


async def test_an_offer_with_a_body_in_chunks_and_a_wish_to_close() -> None:
    offer = b"\r\nconnection: Upgrade, close\r\nupgrade: h2c\r\n\r\n"
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(CHUNKED.replace(b"\r\n\r\n", offer) + b"3\r\nabc\r\n0\r\n\r\n")
        _, headers, body = await client.answer()
        assert (headers["connection"], body) == ("close", b"abc")
        assert await client.closed()


async def test_a_request_that_is_refused_gets_its_name_and_the_shape_of_its_endpoint() -> None:
    def mark(exchange: Exchange) -> None:
        exchange.anthropic = exchange.request.path == "/echo"
        exchange.named = ((b"x-request-id", exchange.request.headers.get(b"x-request-id", b"-")),)

    async with serving(echo, HttpLimits(max_body=4, linger=0.1), mark) as served:
        client = await served.connect()
        await client.send(POST.replace(b"host: x", b"host: x\r\nx-request-id: mine"))
        status, headers, body = await client.answer()
        assert (status, headers["x-request-id"]) == (413, "mine")
        assert json.loads(body)["type"] == "error"


async def test_nothing_of_a_client_that_left_waits_for_the_collector() -> None:
    async def leave_in_the_middle(served: Served) -> list[weakref.ref[object]]:
        client = await served.connect()
        await client.send(POST.replace(b"length: 5", b"length: 500000") + b"x" * 300_000)
        await until(lambda: any(c._large is not None for c in served.server.connections))
        gone = [weakref.ref(c) for c in served.server.connections]
        client.writer.close()
        return [*gone]

    async with serving(echo) as served:
        gc.disable()
        try:
            gone = await leave_in_the_middle(served)
            await until(lambda: all(ref() is None for ref in gone))
        finally:
            gc.enable()
    assert gone


async def test_what_an_abandoned_request_had_in_hand_is_gone_with_it() -> None:
    class InHand:
        pass

    gone: list[weakref.ref[InHand]] = []

    async def for_ever(exchange: Exchange) -> None:
        in_hand = InHand()
        gone.append(weakref.ref(in_hand))
        await asyncio.get_running_loop().create_future()

    async with serving(for_ever) as served:
        gc.disable()
        try:
            client = await served.connect()
            await client.send(POST)
            await until(lambda: bool(gone))
            client.writer.close()
            await until(lambda: gone[0]() is None)
        finally:
            gc.enable()
