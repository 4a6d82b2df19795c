"""A simulated server listening on a socket of this event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from bench.fake_vllm.app import App
from bench.fake_vllm.options import Options

GRACE = 0.2
"""Seconds that open streams get at the end before they are cut."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that accepts connections at `url`; `app` tells and changes what it does."""

    url: str
    port: int
    app: App


@asynccontextmanager
async def running(
    options: Options, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Running]:
    """Serve until the block ends. Port 0 takes a free one. Raises OSError when it is taken."""
    app = App(options)
    runner = web.AppRunner(
        app.application(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=GRACE,
        keepalive_timeout=options.keep_alive,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound: int = runner.addresses[0][1]
        yield Running(f"http://{host}:{bound}", bound, app)
    finally:
        await runner.cleanup()
