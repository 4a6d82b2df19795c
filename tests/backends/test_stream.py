"""An answer under way: its deadlines, its end by cancellation, its backpressure."""

import asyncio
from time import monotonic

import pytest

from backends.client import Client
from backends.errors import (
    FirstTokenTimeout,
    StreamBroken,
    TokenGapTimeout,
    TotalTimeout,
)
from backends.stream import HELD_BYTES, Stream
from backends.types import BackendSpec, Timeouts
from tests.backends.clients import (
    CHUNKED,
    answering,
    ask,
    body_of,
    client_of,
    silent,
    sized,
)
from tests.backends.scripted import (
    Collector,
    Peer,
    deaf_port,
    start,
    until,
)

# Deadlines


async def test_first_token_timeout_before_the_head() -> None:
    async with client_of(silent) as (client, served):
        with pytest.raises(FirstTokenTimeout):
            await ask(client, Timeouts(first_token=0.05))
        await (await served.peer()).left()


async def test_first_token_timeout_after_the_head() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        await peer.until_gone()

    async with client_of(script) as (client, served):
        with pytest.raises(FirstTokenTimeout):
            await ask(client, Timeouts(first_token=0.05))
        await (await served.peer()).left()


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
        await served.peers[0].left()


async def test_a_gap_is_noticed_in_time_also_after_a_late_first_token() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.25)  # the late first token: some gaps after the request
        await peer.say(CHUNKED + b"2\r\nhi\r\n")
        await peer.until_gone()

    async with client_of(script) as (client, _), asyncio.timeout(10):
        stream = await ask(client, Timeouts(first_token=30, token_gap=0.1))
        with pytest.raises(TokenGapTimeout):
            await body_of(stream)


async def test_an_ended_stream_is_kept_by_no_timer() -> None:
    async with client_of(answering(sized(b"x"))) as (client, _):
        stream = await ask(client)
        await body_of(stream)
        assert not list(client._under_way())


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
        await served.peers[0].left()


async def test_each_of_many_streams_meets_its_own_deadline_behind_one_timer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.until_gone()

    async def ended_after(client: Client, limit: float) -> float:
        began = monotonic()
        with pytest.raises(FirstTokenTimeout):
            await ask(client, Timeouts(first_token=limit))
        return monotonic() - began

    limits = [0.3, 0.1, 0.2, 0.1]
    async with client_of(script) as (client, _):
        took = await asyncio.gather(*(ended_after(client, limit) for limit in limits))
    assert all(limit - 0.002 <= seconds for limit, seconds in zip(limits, took, strict=True))
    assert sorted(range(4), key=took.__getitem__)[-2:] == [2, 0]


async def test_what_a_read_brings_is_one_piece_and_the_last_is_known_as_the_last() -> None:
    class Watching(Collector):
        last: bool | None = None

        def write(self, data: bytes, /) -> None:
            super().write(data)
            self.last = stream.complete

    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"1\r\na\r\n")
        await proceed.wait()
        await peer.say(b"1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")

    async with client_of(script) as (client, _):
        stream = await ask(client)
        sink = Watching()
        relaying = start(stream.relay(sink))
        await sink.until(1)
        assert not sink.last
        proceed.set()
        await relaying
        assert (sink.pieces, sink.last) == ([b"a", b"bc"], True)


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
        await served.peers[0].left()
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
        await served.peers[0].left()
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
        await served.peers[0].left()


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
        await served.peers[0].left()


@pytest.mark.parametrize("held", [True, False])
async def test_nothing_is_written_after_the_sink_aborted(held: bool) -> None:
    class AbortingSink(Collector):
        def write(self, data: bytes, /) -> None:
            super().write(data)
            if b"b" in data:
                stream.abort()

    proceed = asyncio.Event()
    more = b"1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"1\r\na\r\n" + (more if held else b""))
        await proceed.wait()
        await peer.say(more, more)

    async with client_of(script) as (client, _):
        stream = await ask(client)
        proceed.set()
        sink = AbortingSink()
        with pytest.raises(StreamBroken):
            await stream.relay(sink)
        assert sink.data == b"abcd"  # one read is one piece


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


async def test_resuming_gives_the_server_a_whole_gap_again() -> None:
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n")) as (client, _):
        stream = await ask(client)
        stream.pause()
        paused_at = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > paused_at + 0.01)
        stream.resume()
        assert stream.heard_at > paused_at
        stream.abort()


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
