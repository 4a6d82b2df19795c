"""How each gateway is started: its command line, and its configuration where it has a file.

Each is given what its own documentation advises for streams, on loopback, with one worker: one
core is what they are compared on.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"

_NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream engine {{
    server {upstream};
    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway is to listen, which server (host:port) it is to have, and where its files
    may lie."""

    port: int
    upstream: str
    folder: Path


Command = Callable[[Place], list[str]]


def forebay(place: Place) -> list[str]:
    """As documented, with the request log on."""
    log = place.folder / "requests.jsonl"
    return [
        *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(place.port)),
        *("--backend", f"http://{place.upstream}", "--request-log", str(log)),
    ]


def aiohttp(place: Place) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.peers.aiohttp_proxy", "--port", str(place.port)),
        *("--upstream", f"http://{place.upstream}"),
    ]


def nginx(place: Place) -> list[str]:
    """No buffering, and connections to the engine that are kept."""
    configuration = place.folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(folder=place.folder, upstream=place.upstream, port=place.port)
    )
    return [_program("nginx"), "-p", str(place.folder), "-c", str(configuration)]


def vllm_router(place: Place) -> list[str]:
    """Round robin: its default policy asks the engine twice more for each request."""
    return [
        *(_program("vllm-router"), "--host", HOST, "--port", str(place.port)),
        *("--worker-urls", f"http://{place.upstream}", "--policy", "round_robin"),
        *("--prometheus-port", str(place.port + 1), "--log-level", "warning"),
    ]


def _program(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, "asked of peers that were found only"
    return path


PEERS: dict[str, Command] = {
    "forebay": forebay,
    "aiohttp": aiohttp,
    "nginx": nginx,
    "vllm-router": vllm_router,
}

_PROGRAMS = {"nginx": "nginx", "vllm-router": "vllm-router"}
"""What must be on the PATH; the others are Python of this environment."""


def is_installed(peer: str) -> bool:
    return peer not in _PROGRAMS or shutil.which(_PROGRAMS[peer]) is not None
