"""The errors of upstream exchanges, by phase, and by whose fault they are.

    BackendError(backend, message)
    ├── ConnectError          phase connect: nothing was sent
    │   ├── ConnectFailed         refused, unreachable, name or TLS failure: the server's fault
    │   ├── ConnectTimeout        no connection within `Timeouts.connect`: the server's fault
    │   └── ConnectionsExhausted  our own bound on connections is reached: our fault
    ├── PhaseTimeout          connected, then too slow: the server's fault
    │   ├── FirstTokenTimeout     phase first_token: no body byte within `Timeouts.first_token`
    │   ├── TokenGapTimeout       phase token_gap: the stream stalled
    │   └── TotalTimeout          phase total: the exchange is over its whole budget
    ├── StreamBroken          phase stream: the connection was lost before the answer's end
    ├── BadResponse           phase response: what came is not HTTP/1.1, or its head is too large
    └── NotServing            phase probe: the server cannot take traffic yet, and why; never from
                              a client's request

An HTTP error status is no error here: it is an answer, and the caller reads `Stream.status`.
"""

from typing import ClassVar


class BackendError(Exception):
    """Base of all errors of upstream exchanges. `phase` names where it happened."""

    phase: ClassVar[str] = ""

    def __init__(self, backend: str, message: str) -> None:
        super().__init__(f"backend {backend}: {message}")
        self.backend = backend
        self.message = message


class ConnectError(BackendError):
    """There was no connection to send the request on: always safe to send it elsewhere."""

    phase = "connect"


class ConnectFailed(ConnectError):
    """The server refused or could not be reached."""


class ConnectTimeout(ConnectError):
    """The server did not accept within `Timeouts.connect`."""


class ConnectionsExhausted(ConnectError):
    """`ClientLimits.connections` are in use. Says nothing about the server's health."""


class PhaseTimeout(BackendError):
    """The server was connected but too slow; subclasses say in which phase."""


class FirstTokenTimeout(PhaseTimeout):
    """No byte of the body came within `Timeouts.first_token`."""

    phase = "first_token"


class TokenGapTimeout(PhaseTimeout):
    """The body began, then nothing came for `Timeouts.token_gap`."""

    phase = "token_gap"


class TotalTimeout(PhaseTimeout):
    """The exchange took longer than `Timeouts.total`."""

    phase = "total"


class StreamBroken(BackendError):
    """The connection was lost after the request was sent and before the answer's end."""

    phase = "stream"


class BadResponse(BackendError):
    """The bytes that came are not an HTTP/1.1 response that we accept."""

    phase = "response"


class NotServing(BackendError):
    """A probe or warm-up did not get the answers that a serving backend gives."""

    phase = "probe"


_KINDS: dict[str, type[BackendError]] = {
    kind.__name__: kind
    for kind in (
        BackendError,
        ConnectError,
        ConnectFailed,
        ConnectTimeout,
        ConnectionsExhausted,
        PhaseTimeout,
        FirstTokenTimeout,
        TokenGapTimeout,
        TotalTimeout,
        StreamBroken,
        BadResponse,
        NotServing,
    )
}


def to_wire(error: BackendError) -> tuple[str, str, str]:
    """Kind, backend and message, for another process of this version; `from_wire` reads it."""
    return type(error).__name__, error.backend, error.message


def from_wire(kind: str, backend: str, message: str) -> BackendError:
    """The error that `to_wire` took apart. KeyError for a kind that does not exist."""
    return _KINDS[kind](backend, message)
