"""How each gateway is started: its command line, and its configuration where it has a file.

Each is given what its own documentation advises for streams, on loopback, with one worker: one
core is what they are compared on.
"""

import shutil
import sys
from collections.abc import Callable

from bench.peers.place import HOST, Place
from bench.peers.proxies import envoy, haproxy, nginx
from bench.peers.routers import litellm, sglang_router, vllm_router

__all__ = ["HOST", "PEERS", "Command", "Place", "is_installed"]

Command = Callable[[Place], list[str]]


def forebay(place: Place) -> list[str]:
    """As documented, with the request log on."""
    log = place.folder / "requests.jsonl"
    return [
        *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(place.port)),
        *(part for url in place.urls for part in ("--backend", url)),
        *("--request-log", str(log)),
    ]


def aiohttp(place: Place) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.peers.aiohttp_proxy", "--port", str(place.port)),
        *(part for url in place.urls for part in ("--upstream", url)),
    ]


PEERS: dict[str, Command] = {
    "forebay": forebay,
    "aiohttp": aiohttp,
    "nginx": nginx,
    "haproxy": haproxy,
    "envoy": envoy,
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
}

_PYTHON_OF_THIS_ENVIRONMENT = ("forebay", "aiohttp")


def is_installed(peer: str) -> bool:
    """Its program, named as the peer, must be on the PATH."""
    return peer in _PYTHON_OF_THIS_ENVIRONMENT or shutil.which(peer) is not None
