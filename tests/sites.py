"""Small web servers of tests, on a port of their own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web


@asynccontextmanager
async def site(application: web.Application) -> AsyncIterator[str]:
    """Serve it; yields its URL."""
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listening_in(url: str, hear: Callable[[web.Request], None]) -> AsyncIterator[str]:
    """A server between gateway and engine; `hear` is told of each request that it passes on."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        hear(request)
        body, kind = await request.read(), {"content-type": request.content_type}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url + request.path, data=body, headers=kind) as answer,
        ):
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", pass_on)
    async with site(application) as where:
        yield where
