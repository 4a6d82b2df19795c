"""The plainest client there is, to measure the load generator against: a socket that blocks.

One request at a time, sent and read with two system calls, stamped as wrk and its like do it:
from the moment of sending to the first byte of an event. Nothing of it is used in a load.
"""

import socket
from collections.abc import Sequence
from time import perf_counter, sleep
from urllib.parse import urlsplit

from bench.load.target import Target

EVENT, END = b"data:", b"0\r\n\r\n"
RECEIVE = 262_144


class RulerFailed(Exception):
    """The server's answer was not a stream of events with status 200."""


def ttfts(target: Target, bodies: Sequence[bytes], *, pause: float = 0.0) -> list[float]:
    """Seconds to the first token of each body, sent one after the other over one connection.

    With a `pause` before each, both sides have gone to sleep and must be woken.
    Raises RulerFailed, and OSError when there is no connection.
    """
    url = urlsplit(target.origin)
    with socket.create_connection((url.hostname or "", url.port or 80)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return [_one(connection, _request(target, url.netloc, body), pause) for body in bodies]


def _request(target: Target, host: str, body: bytes) -> bytes:
    head = (
        f"POST {target.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _one(connection: socket.socket, request: bytes, pause: float) -> float:
    first, answer = 0.0, b""
    sleep(pause)
    sent = perf_counter()
    connection.sendall(request)
    while not answer.endswith(END):
        data = connection.recv(RECEIVE)
        if not data:
            raise RulerFailed("the server closed the connection")
        answer += data
        if not first and EVENT in answer:
            first = perf_counter()
    if not answer.startswith(b"HTTP/1.1 200") or not first:
        raise RulerFailed(answer[:200].decode(errors="replace"))
    return first - sent
