"""What the client makes of answers, framed in every way and none."""

import asyncio

import pytest

from backends.client import Client
from backends.errors import (
    BackendError,
    BadResponse,
    StreamBroken,
)
from backends.types import BackendSpec
from tests.backends.clients import (
    CHUNKED,
    PATIENT,
    answering,
    ask,
    body_of,
    client_of,
    sized,
)
from tests.backends.scripted import (
    Collector,
    Peer,
    serving,
)

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


async def test_a_body_may_be_of_another_type_but_bring_no_header_of_its_own() -> None:
    async with client_of(answering(sized(b"x"))) as (client, served):
        form = 'multipart/form-data; boundary="x"'
        await body_of(await client.open("/p", b"", timeouts=PATIENT, content_type=form))
        assert f"\r\ncontent-type: {form}\r\n".encode() in served.peers[0].requests[0]
        with pytest.raises(ValueError, match="line break"):
            await client.open("/p", b"", timeouts=PATIENT, content_type="a\r\nhost: b")


@pytest.mark.parametrize(("key", "sent"), [("ours", b"Bearer ours"), (None, b"Bearer theirs")])
async def test_a_backend_s_own_key_replaces_the_client_s(key: str | None, sent: bytes) -> None:
    async with serving(answering(sized(b"x"))) as served:
        client = Client(served.spec(api_key=key))
        theirs = [("Authorization", "Bearer theirs")]
        await body_of(await client.open("/p", b"", timeouts=PATIENT, headers=theirs))
        lines = served.peers[0].requests[0].split(b"\r\n")
        keys = [line for line in lines if line.lower().startswith(b"authorization:")]
        assert [line.partition(b": ")[2] for line in keys] == [sent]
        await client.close()


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
        await (await served.peer()).left()


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
