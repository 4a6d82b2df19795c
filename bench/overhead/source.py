"""Which engine stands behind the gateways: one that answers at once, a given one, a vLLM here.

Not here: what a given one is asked about itself, and how a vLLM is started (bench/compare/engines).
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated

import aiohttp
import orjson
import typer

from bench.children import Children
from bench.compare.engines import CompareFailed, Engines, given, real
from bench.overhead.answers import MODEL
from bench.overhead.cores import core_of, pinned
from bench.peers.place import HOST
from bench.vllm_env.build import BuildError

FAILURES = (CompareFailed, BuildError, aiohttp.ClientError)
"""What `start` raises."""
Backend = Annotated[
    str | None, typer.Option(help="A server that runs already, instead of the instant engine.")
]
Model = Annotated[str | None, typer.Option(help="Of --backend; default: the first one served.")]
Real = Annotated[bool, typer.Option("--real", help="Start a real vLLM on the CPU for it.")]


@dataclass(frozen=True, slots=True)
class Source:
    """The server at `url` with `model`, or a `real` vLLM that is started; else the instant one."""

    url: str | None = None
    model: str | None = None
    real: bool = False

    @property
    def name(self) -> str:
        if self.url is not None:
            return self.url
        return "vLLM on the CPU" if self.real else MODEL

    @property
    def instant(self) -> bool:
        return self.url is None and not self.real


INSTANT = Source()


@dataclass(frozen=True, slots=True)
class Upstream:
    """An engine that runs. One that is `paced` is as fast as it is told, and counts prompts."""

    host: str
    port: int
    model: str
    paced: bool


def chosen(backend: str | None, model: str | None, *, real: bool) -> Source:
    """What the command line asks for. Raises BadParameter."""
    if backend is not None and real:
        raise typer.BadParameter("say --backend URL or --real, not both")
    return Source(backend, model, real)


async def start(source: Source, started: Children) -> Upstream:
    """Raises FAILURES."""
    if source.url is not None:
        return _named(await given((source.url,), source.model, None))
    with pinned(core_of(gateway=False)):
        if source.real:
            return _named(await real(started, typer.echo))
        engine = await started.start(
            "engine", sys.executable, "-m", "bench.overhead.engine", announces=True
        )
    line = await engine.first_line()
    if not line:
        await asyncio.Event().wait()  # It ended; its watcher is about to say so.
    return Upstream(HOST, orjson.loads(line)["port"], MODEL, paced=True)


def _named(engines: Engines) -> Upstream:
    (address,) = engines.upstreams
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise CompareFailed(f"not http://host:port: http://{address}")
    return Upstream(host, int(port), engines.model, paced=False)
