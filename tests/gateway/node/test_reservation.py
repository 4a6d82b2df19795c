"""The reserved port: ours for the relay processes alone."""

import socket
from contextlib import suppress

import pytest

from gateway.node.reservation import Reservation


def listening(port: int, *, shared: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def test_relay_processes_share_a_reserved_port_and_get_every_connection() -> None:
    reservation = Reservation("127.0.0.1", 0)
    with listening(reservation.port, shared=True) as one, listening(reservation.port, shared=True):
        one.setblocking(False)
        clients = [socket.create_connection(("127.0.0.1", reservation.port)) for _ in range(64)]
        accepted = []
        with suppress(BlockingIOError):
            while True:
                accepted.append(one.accept()[0])
        assert 8 < len(accepted) < 56, "the kernel spreads them, and the reservation takes none"
        for each in (*clients, *accepted):
            each.close()
    reservation.close()


def test_a_port_that_others_share_already_is_refused() -> None:
    with listening(0, shared=True) as other, pytest.raises(OSError, match="in use"):
        Reservation("127.0.0.1", other.getsockname()[1])


def test_the_port_is_free_again_when_the_reservation_is_closed() -> None:
    reservation = Reservation("127.0.0.1", 0)
    with listening(reservation.port, shared=True), pytest.raises(OSError, match="in use"):
        listening(reservation.port, shared=False)
    reservation.close()
    listening(reservation.port, shared=False).close()
