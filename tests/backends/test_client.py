"""The upstream client against scripted servers on real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backends.client import Client, ClientLimits
from backends.errors import (
    BackendError,
    BadResponse,
    ConnectFailed,
    ConnectionsExhausted,
    ConnectTimeout,
    FirstTokenTimeout,
    StreamBroken,
    TokenGapTimeout,
    TotalTimeout,
)
from backends.stream import HELD_BYTES, Stream
from backends.types import BackendSpec, Timeouts
from tests.backends.scripted import (
    Collector,
    Peer,
    Script,
    Scripted,
    deaf_port,
    serving,
    start,
    until,
    unused_port,
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


# Framing


FRAMINGS = {
    "sized": (sized(b"hello world"), "wait"),
    "chunked": (CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "wait"),
    "trailers": (CHUNKED + b"b;x=y\r\nhello world\r\n0\r\nX-Late: 1\r\n\r\n", "wait"),
    "until close": (b"HTTP/1.1 200 OK\r\n\r\nhello world", "close"),
    "after 100 and 103": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        + sized(b"hello world"),
        "wait",
    ),
}


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_body_arrives_unchanged_however_the_bytes_are_split(framing: str) -> None:
    answer, then = FRAMINGS[framing]
    for cut in range(1, len(answer)):
        async with client_of(answering(answer[:cut], answer[cut:], then=then)) as (client, _):
            stream = await ask(client)
            assert (stream.status, await body_of(stream)) == (200, b"hello world")


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_body_arrives_byte_by_byte(framing: str) -> None:
    answer, then = FRAMINGS[framing]
    pieces = [answer[i : i + 1] for i in range(len(answer))]
    async with client_of(answering(*pieces, then=then)) as (client, _):
        assert await body_of(await ask(client)) == b"hello world"


async def test_an_empty_body_ends_at_once() -> None:
    async with client_of(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as (client, _):
        stream = await ask(client)
        assert (stream.status, await body_of(stream)) == (204, b"")
        assert stream.first_byte_at >= stream.connected_at


async def test_only_end_to_end_headers_are_kept() -> None:
    answer = sized(
        b"x", b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 9\r\nX-Request-Id: a\r\n"
    )
    async with client_of(answering(answer)) as (client, _):
        stream = await ask(client)
        assert stream.headers == [(b"content-length", b"1"), (b"x-request-id", b"a")]
        await body_of(stream)


async def test_an_error_status_is_an_answer() -> None:
    answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy"
    async with client_of(answering(answer)) as (client, _):
        stream = await ask(client)
        assert (stream.status, await body_of(stream)) == (503, b"busy")


async def test_the_request_on_the_wire() -> None:
    async with client_of(answering(sized(b"x"))) as (client, served):
        await body_of(
            await client.open("/p", b'{"a":1}', timeouts=PATIENT, headers=[("x-request-id", "r1")])
        )
        sent = served.peers[0].requests[0]
        assert sent == (
            b"POST /p HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
            b'content-length: 7\r\nx-request-id: r1\r\n\r\n{"a":1}' % served.port
        )


async def test_the_api_key_is_sent_and_large_bodies_arrive_whole() -> None:
    async with serving(answering(sized(b"x"))) as served:
        client = Client(served.spec(api_key="secret"))
        body = b"0123456789" * 500_000
        assert await body_of(await ask(client, body=body)) == b"x"
        head, _, sent = served.peers[0].requests[0].partition(b"\r\n\r\n")
        assert b"\r\nauthorization: Bearer secret" in head
        assert sent == body
        await client.close()


@pytest.mark.parametrize("bad", ["a\r\nx: y", "a\nb", "a\rb"])
async def test_a_line_break_in_a_header_is_refused(bad: str) -> None:
    client = Client(BackendSpec("b1", "http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="line break"):
        await client.open("/p", b"", timeouts=PATIENT, headers=[("x", bad)])
    with pytest.raises(ValueError, match="line break"):
        await client.open(f"/{bad}", b"", timeouts=PATIENT)


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h/v1", "h:80"])
def test_only_plain_server_urls_are_taken(url: str) -> None:
    with pytest.raises(ValueError, match="b1"):
        Client(BackendSpec("b1", url))


# What is not an answer


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage garbage garbage",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhi",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x-filler: aaaaaaaaaaaaaaaa\r\n" * 5_000,
        b"HTTP/1.1 200 OK\r\nx-endless: " + b"a" * 100_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
    ],
    ids=["garbage", "two-framings", "gzip", "upgrade", "many", "endless", "interim"],
)
async def test_what_is_not_an_answer_is_a_bad_response(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        await peer.until_gone()

    async with client_of(script) as (client, served):
        with pytest.raises(BadResponse):
            await ask(client)
        await (await served.peer()).gone.wait()


async def test_a_broken_chunk_ends_the_relay() -> None:
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n", b"zz\r\n")) as (client, _):
        stream = await ask(client)
        sink = Collector()
        with pytest.raises(BadResponse):
            await stream.relay(sink)
        assert sink.data == b"hi"


async def test_endless_trailers_are_cut() -> None:
    trailers = [b"x-t: aaaaaaaaaaaaaaaa\r\n" * 1_000] * 10
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n0\r\n", *trailers)) as (client, _):
        stream = await ask(client)
        with pytest.raises(BadResponse, match="65536"):
            await body_of(stream)


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", CHUNKED])
async def test_a_connection_lost_before_the_first_byte(sent: bytes, then: str) -> None:
    async with client_of(answering(sent, then=then)) as (client, _):
        with pytest.raises(StreamBroken) as caught:
            await ask(client)
        assert (caught.value.backend, caught.value.phase) == ("b1", "stream")


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_connection_lost_mid_answer(then: str) -> None:
    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await proceed.wait()
        if then == "reset":
            await peer.reset()

    async with client_of(script) as (client, _):
        stream = await ask(client)
        proceed.set()
        sink = Collector()
        with pytest.raises(StreamBroken):
            await stream.relay(sink)
        assert sink.data == b"hi"


# Connecting, and the pool


async def test_nothing_listens() -> None:
    client = Client(BackendSpec("b1", f"http://127.0.0.1:{unused_port()}"))
    with pytest.raises(ConnectFailed) as caught:
        await ask(client)
    assert caught.value.phase == "connect"
    assert client.in_flight == 0


async def test_slow_connect_times_out() -> None:
    with deaf_port() as port:
        client = Client(BackendSpec("b1", f"http://127.0.0.1:{port}"))
        with pytest.raises(ConnectTimeout):
            await ask(client, Timeouts(connect=0.05))
        assert client.in_flight == 0


async def test_connections_are_reused_one_after_the_other() -> None:
    async with client_of(answering(CHUNKED, b"1\r\nx\r\n0\r\n\r\n")) as (client, served):
        for _ in range(5):
            assert await body_of(await ask(client)) == b"x"
        assert (client.connects, client.reuses, len(served.peers)) == (1, 4, 1)
        assert len(served.peers[0].requests) == 5


async def test_parallel_requests_get_connections_of_their_own() -> None:
    async with client_of(answering(sized(b"x"))) as (client, _):
        streams = await asyncio.gather(*(ask(client) for _ in range(8)))
        assert [await body_of(stream) for stream in streams] == [b"x"] * 8
        assert client.connects == 8
        await body_of(await ask(client))
        assert client.connects == 8


@pytest.mark.parametrize(
    "answer",
    [
        sized(b"x", b"connection: close\r\n"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx",
        sized(b"x") + b"HTTP/1.1 200 OK\r\n\r\n",
        sized(b"x") + b"garbage",
    ],
    ids=["close", "http10", "second-answer", "surplus"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_reused(answer: bytes) -> None:
    async with client_of(answering(answer)) as (client, _):
        assert await body_of(await ask(client)) == b"x"
        assert await body_of(await ask(client)) == b"x"
        assert (client.connects, client.reuses) == (2, 0)


async def test_an_answer_before_the_whole_request_was_read_does_not_reuse() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.gone.wait()

    async with client_of(script) as (client, served):
        stream = await ask(client, body=b"x" * 30_000_000)
        assert (stream.status, await body_of(stream)) == (413, b"no")
        assert repr(client).split()[3] == "idle=0"
        served.peers[0].gone.set()


async def test_a_connection_that_died_while_idle_is_replaced_unseen() -> None:
    async def dies_at_the_second_request(peer: Peer) -> None:
        await peer.request()
        await peer.say(sized(b"1"))
        await peer.request()

    async with client_of(dies_at_the_second_request, answering(sized(b"2"))) as (client, _):
        assert await body_of(await ask(client)) == b"1"
        assert await body_of(await ask(client)) == b"2"
        assert (client.connects, client.reuses, client.stale_retries) == (2, 1, 1)


async def test_a_reused_connection_that_dies_after_a_byte_is_not_retried() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(sized(b"1"))
        await peer.request()
        await peer.say(b"H")

    async with client_of(script) as (client, served):
        assert await body_of(await ask(client)) == b"1"
        with pytest.raises(StreamBroken):
            await ask(client)
        assert len(served.peers) == 1


async def test_a_fresh_connection_that_dies_is_not_retried() -> None:
    async with client_of(answering(b"", then="close")) as (client, served):
        with pytest.raises(StreamBroken):
            await ask(client)
        assert len(served.peers) == 1


async def test_a_server_that_closes_an_idle_connection_is_noticed() -> None:
    async with client_of(answering(sized(b"x"), then="close")) as (client, _):
        stream = await ask(client)
        await body_of(stream)
        await until(lambda: " idle=1 " not in repr(client))
        await body_of(await ask(client))
        assert (client.connects, client.reuses) == (2, 0)


async def test_idle_connections_are_closed_before_the_server_would() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(sized(b"x"))
        await peer.until_gone()

    async with client_of(script, limits=ClientLimits(idle=0.05)) as (client, served):
        await body_of(await ask(client))
        await served.peers[0].gone.wait()
        assert " idle=0 " in repr(client)


async def test_connections_are_bounded() -> None:
    async with client_of(silent, limits=ClientLimits(connections=2)) as (client, served):
        asking = [start(ask(client)) for _ in range(2)]
        await served.peer(1)
        with pytest.raises(ConnectionsExhausted):
            await ask(client)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_small_segments_are_not_delayed() -> None:
    async with client_of(silent) as (client, _):
        asking = start(ask(client))
        await until(lambda: bool(client._busy))
        (connection,) = client._busy
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        asking.cancel()


async def test_a_closed_client_opens_nothing() -> None:
    async with serving(answering(sized(b"x"))) as served:
        client = Client(served.spec())
        stream = await ask(client)
        await body_of(stream)
        await client.close()
        with pytest.raises(ConnectFailed, match="closed"):
            await ask(client)
        assert "busy=0 idle=0" in repr(client)


async def test_closing_breaks_a_stream_in_use() -> None:
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n")) as (client, _):
        stream = await ask(client)
        await client.close()
        with pytest.raises(StreamBroken):
            await body_of(stream)


# Deadlines


async def test_first_token_timeout_before_the_head() -> None:
    async with client_of(silent) as (client, served):
        with pytest.raises(FirstTokenTimeout):
            await ask(client, Timeouts(first_token=0.05))
        await (await served.peer()).gone.wait()


async def test_first_token_timeout_after_the_head() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        await peer.until_gone()

    async with client_of(script) as (client, served):
        with pytest.raises(FirstTokenTimeout):
            await ask(client, Timeouts(first_token=0.05))
        await (await served.peer()).gone.wait()


async def test_token_gap_timeout_is_not_stretched_by_a_long_first_token_timeout() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, served):
        stream = await ask(client, Timeouts(first_token=30, token_gap=0.05))
        sink = Collector()
        with pytest.raises(TokenGapTimeout) as caught:
            await stream.relay(sink)
        assert (caught.value.phase, sink.data) == ("token_gap", b"hi")
        await served.peers[0].gone.wait()


async def test_a_stream_that_keeps_coming_outlives_the_token_gap() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        for _ in range(5):
            await peer.say(b"1\r\nx\r\n")
            await asyncio.sleep(0.25)  # the pace under test, well below the gap
        await peer.say(b"0\r\n\r\n")

    async with client_of(script) as (client, _):
        stream = await ask(client, Timeouts(token_gap=1.0))
        assert await body_of(stream) == b"x" * 5


async def test_total_timeout_ends_a_stream_that_keeps_coming() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        while not peer.writer.is_closing():
            await peer.say(b"1\r\nx\r\n")

    async with client_of(script) as (client, _):
        stream = await ask(client, Timeouts(total=0.1))
        with pytest.raises(TotalTimeout):
            await body_of(stream)


async def test_a_stream_that_nobody_relays_is_closed_by_its_deadline() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, served):
        await ask(client, Timeouts(token_gap=0.05))
        await served.peers[0].gone.wait()


# Who leaves


async def test_cancelled_while_connecting() -> None:
    with deaf_port() as port:
        client = Client(BackendSpec("b1", f"http://127.0.0.1:{port}"))
        asking = start(ask(client))
        await until(lambda: client.in_flight > 0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()
        assert client.in_flight == 0


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 2", CHUNKED], ids=["nothing", "part", "head"])
async def test_cancelled_before_the_first_byte_closes_upstream(sent: bytes) -> None:
    said = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(sent)
        said.set()
        await peer.until_gone()

    async with client_of(script) as (client, served):
        asking = start(ask(client))
        await said.wait()
        asking.cancel()
        await served.peers[0].gone.wait()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()


async def test_cancelled_while_relaying_closes_upstream() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, served):
        stream = await ask(client)
        sink = Collector()
        relaying = start(stream.relay(sink))
        await sink.until(2)
        relaying.cancel()
        await served.peers[0].gone.wait()
        await asyncio.gather(relaying, return_exceptions=True)
        assert relaying.cancelled()


async def test_cancelled_at_the_very_moment_of_the_answer_leaks_nothing() -> None:
    """The answer and the cancellation meet in one turn of the loop."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, served):
        asking = start(ask(client))
        await until(lambda: any(connection.answered for connection in client._busy))
        asking.cancel()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(outcome, Stream):
            outcome.abort()
        await served.peers[0].gone.wait()


async def test_abort_ends_a_waiting_relay() -> None:
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n")) as (client, _):
        stream = await ask(client)
        sink = Collector()
        relaying = start(stream.relay(sink))
        await sink.until(2)
        stream.abort()
        with pytest.raises(StreamBroken, match="aborted"):
            await relaying


class LeavingSink(Collector):
    """A client that is gone: its transport raises from the second write on."""

    def write(self, data: bytes, /) -> None:
        if self.pieces:
            raise ConnectionResetError("client left")
        super().write(data)


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_the_sink_raises_leaves_relay_and_closes_upstream(at_once: bool) -> None:
    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nhi\r\n" * (2 if at_once else 1))
        await proceed.wait()
        await peer.say(b"2\r\nho\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, served):
        stream = await ask(client)
        proceed.set()
        with pytest.raises(ConnectionResetError, match="client left"):
            await stream.relay(LeavingSink())
        await served.peers[0].gone.wait()


async def test_nothing_is_written_after_the_sink_aborted() -> None:
    class AbortingSink(Collector):
        def write(self, data: bytes, /) -> None:
            super().write(data)
            if len(self.pieces) == 2:
                stream.abort()

    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"1\r\na\r\n")
        await proceed.wait()
        await peer.say(b"1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n")

    async with client_of(script) as (client, _):
        stream = await ask(client)
        proceed.set()
        sink = AbortingSink()
        with pytest.raises(StreamBroken):
            await stream.relay(sink)
        assert sink.data == b"ab"


# Backpressure


class Flood:
    """Sends without end until the client's window is shut; `sent` is what went in."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.sent = 0

    async def script(self, peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % self.total)
        piece = b"x" * 65_536
        while self.sent < self.total:
            await peer.say(piece)
            self.sent += len(piece)

    async def until_stuck(self) -> None:
        """Wait until nothing more goes in for 100 turns of the loop and 50 ms."""
        before = -1
        while before != self.sent:
            before = self.sent
            await asyncio.sleep(0.05)


TOTAL = 64 * 1024 * 1024
SOCKET_BUFFERS = 16 * 1024 * 1024


class PausingSink:
    """Counts bytes; pauses its stream after each write until `resume` is called."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.count = 0
        self.open = False

    def write(self, data: bytes, /) -> None:
        self.count += len(data)
        if not self.open:
            assert self.stream is not None
            self.stream.pause()


async def test_a_paused_sink_stops_the_server_and_loses_nothing() -> None:
    flood = Flood(TOTAL)
    async with client_of(flood.script) as (client, _):
        stream = await ask(client, Timeouts(token_gap=0.2))
        sink = PausingSink()
        sink.stream = stream
        relaying = start(stream.relay(sink))
        await flood.until_stuck()
        assert sink.count < 1_048_576
        assert flood.sent < SOCKET_BUFFERS
        await asyncio.sleep(0.3)  # longer than the token gap: pausing is not the server's fault
        sink.open = True
        stream.resume()
        await relaying
        assert sink.count == TOTAL


async def test_an_answer_that_nobody_relays_yet_is_held_in_bounds() -> None:
    flood = Flood(TOTAL)
    async with client_of(flood.script) as (client, _):
        stream = await ask(client)
        await flood.until_stuck()
        assert stream._held_bytes <= HELD_BYTES + 262_144
        assert flood.sent < SOCKET_BUFFERS
        assert len(await body_of(stream)) == TOTAL


async def test_pausing_an_ended_stream_does_not_touch_the_next_one() -> None:
    async with client_of(answering(sized(b"x"))) as (client, _):
        first = await ask(client)
        await body_of(first)
        second = await ask(client)
        first.pause()
        first.abort()
        assert await body_of(second) == b"x"
        assert client.connects == 1


async def test_a_stream_paused_at_its_last_byte_gives_back_a_reading_connection() -> None:
    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"1\r\na\r\n")
        await proceed.wait()
        await peer.say(b"1\r\nb\r\n0\r\n\r\n")
        await answering(sized(b"x"))(peer)

    async with client_of(script) as (client, _):
        stream = await ask(client)
        sink = PausingSink()
        sink.stream = stream
        relaying = start(stream.relay(sink))
        proceed.set()
        await until(lambda: sink.count > 0)
        stream.resume()
        await relaying
        assert await body_of(await ask(client, Timeouts(first_token=5))) == b"x"
        assert client.connects == 1


def test_every_error_names_its_phase() -> None:
    def leaves(error: type[BackendError]) -> list[type[BackendError]]:
        below = [leaf for child in error.__subclasses__() for leaf in leaves(child)]
        return below or [error]

    phases = {leaf.__name__: leaf.phase for leaf in leaves(BackendError)}
    assert phases == {
        "ConnectFailed": "connect",
        "ConnectTimeout": "connect",
        "ConnectionsExhausted": "connect",
        "FirstTokenTimeout": "first_token",
        "TokenGapTimeout": "token_gap",
        "TotalTimeout": "total",
        "StreamBroken": "stream",
        "BadResponse": "response",
        "NotServing": "probe",
    }
