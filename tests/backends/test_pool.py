"""Connections: made, reused, bounded, given up."""

import asyncio
import socket
import time

import pytest

from backends.client import Client, ClientLimits
from backends.errors import (
    ConnectFailed,
    ConnectionsExhausted,
    ConnectTimeout,
    StreamBroken,
)
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
    Peer,
    deaf_port,
    serving,
    start,
    until,
    unused_port,
)

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
        async with asyncio.timeout(3):
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
        await served.peers[0].left()
        assert " idle=0 " in repr(client)


async def test_a_stalled_loop_does_not_use_what_the_server_has_closed_meanwhile() -> None:
    async with client_of(answering(sized(b"x")), limits=ClientLimits(idle=0.05)) as (client, _):
        await body_of(await ask(client))
        time.sleep(0.1)  # noqa: ASYNC251 - the stall under test
        await body_of(await ask(client))
        assert (client.connects, client.reuses) == (2, 0)


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


async def test_a_connection_that_was_being_made_while_the_client_closed_is_closed() -> None:
    async def script(peer: Peer) -> None:
        await peer.until_gone()

    async with serving(script) as served:
        client = Client(served.spec())
        asking = start(ask(client))
        await until(lambda: client.in_flight > 0)
        await client.close()
        with pytest.raises(ConnectFailed, match="closed"):
            await asking
        await (await served.peer()).left()


async def test_idleness_counts_from_the_end_of_the_last_exchange() -> None:
    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await proceed.wait()
        await peer.say(sized(b"x"))
        await peer.until_gone()

    async with client_of(script) as (client, served):
        loop = asyncio.get_running_loop()
        asking = start(ask(client))
        await served.peer()
        begun = loop.time()
        await until(lambda: loop.time() > begun + 0.01)
        during = client.idle_since
        proceed.set()
        await body_of(await asking)
        after = client.idle_since
        assert during is None
        assert after is not None
        assert after > begun


async def test_renewing_replaces_what_will_not_last_for_another_half() -> None:
    limits = ClientLimits(idle=0.4, spare=1)
    async with client_of(answering(sized(b"x")), limits=limits) as (client, _):
        await body_of(await ask(client))
        loop = asyncio.get_running_loop()
        freed = loop.time()
        await client.renew(Timeouts())
        assert client.connects == 1, "the young one lasts"
        await until(lambda: loop.time() > freed + 0.22)
        await client.renew(Timeouts())
        assert client.connects == 2


async def test_closing_breaks_a_stream_in_use() -> None:
    async with client_of(answering(CHUNKED + b"2\r\nhi\r\n")) as (client, _):
        stream = await ask(client)
        await client.close()
        with pytest.raises(StreamBroken):
            await body_of(stream)
