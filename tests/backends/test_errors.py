"""Errors travel between the processes of one node without becoming others."""

import pytest

from backends.errors import BackendError, ConnectFailed, from_wire, to_wire


def every_kind(kind: type[BackendError] = BackendError) -> list[type[BackendError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in every_kind(sub))]


@pytest.mark.parametrize("kind", every_kind())
def test_every_kind_of_error_arrives_as_it_left(kind: type[BackendError]) -> None:
    arrived = from_wire(*to_wire(kind("b1", "no more: 7")))
    assert type(arrived) is kind
    assert (arrived.backend, arrived.message, str(arrived)) == (
        "b1",
        "no more: 7",
        "backend b1: no more: 7",
    )


def test_an_unknown_kind_is_refused() -> None:
    assert to_wire(ConnectFailed("b", "x"))[0] == "ConnectFailed"
    with pytest.raises(KeyError):
        from_wire("SystemExit", "b1", "boo")
