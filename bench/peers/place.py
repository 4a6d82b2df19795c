"""Where a peer runs, and how its program is found."""

import shutil
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway is to listen, which servers (host:port) it is to have, and where its files
    may lie.

    `model` is what the servers serve, for gateways that must be told. A peer with a port of its
    own for metrics takes the next one.
    """

    port: int
    upstream: str
    folder: Path
    others: tuple[str, ...] = ()
    model: str = ""

    @property
    def upstreams(self) -> tuple[str, ...]:
        return (self.upstream, *self.others)

    @property
    def urls(self) -> list[str]:
        return [f"http://{upstream}" for upstream in self.upstreams]


def program(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, "asked of peers that were found only"
    return path
