"""Keeps an address for the relay processes, which all listen on it with SO_REUSEPORT.

Two servers that both set SO_REUSEPORT share a port silently. So the address is first taken without
it, which fails where anything else listens; then with it, bound but not listening: that reserves
the port (and finds a free one) without getting any connection.
"""

import socket


class Reservation:
    """Holds `port` until closed. Raises OSError when something else has it."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self._held: list[socket.socket] = []
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in found:
                self._take(family, str(address[0]))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        for held in self._held:
            held.close()

    def _take(self, family: int, host: str) -> None:
        with _bound(family, host, self.port, shared=False) as alone:
            self.port = alone.getsockname()[1]
        self._held.append(_bound(family, host, self.port, shared=True))


def _bound(family: int, host: str, port: int, *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
