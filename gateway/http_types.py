"""What the HTTP server hands to the handlers, and the limits it enforces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(slots=True)
class Request:
    """A complete request. Header names are lower case; of repeated headers the last counts.
    `query` is what follows the `?` in its target.

    `arrived` is when the first byte of the request came, `received` when the last one did, both
    in seconds on the monotonic clock. Nobody changes it; it is not frozen because that would make
    it three times as costly to make, once a request.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes] = field(repr=False)
    body: bytes = field(repr=False)
    arrived: float
    received: float
    query: str = ""

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what one client connection may cost. Sizes in bytes, times in seconds.

    `read_timeout` is for a whole request, head and body; `stall_timeout` for a client that does
    not take its answer; `linger` for a refused client that is still sending. One address may have
    `max_connections_per_address` open (0: any number).
    """

    max_head: int = 64 * 1024
    max_body: int = 64 * 1024 * 1024
    max_pipelined: int = 8
    read_timeout: float = 30.0
    idle_timeout: float = 75.0
    stall_timeout: float = 60.0
    linger: float = 2.0
    max_connections_per_address: int = 4096


STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
STATUS_LINES[499] = b"HTTP/1.1 499 Client Closed Request\r\n"


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
