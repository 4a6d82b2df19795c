"""The plain Python design, as a peer: an aiohttp server that relays to an aiohttp client session.

It does nothing but relay, chunk by chunk and without delay, with what the library advises: one
session, no limit on connections, no automatic decompression.
"""

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncIterator

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict

from bench.peers.stalls import Stalls

UPSTREAMS = web.AppKey("upstreams", deque[str])
SESSION = web.AppKey("session", ClientSession)
STALLS = web.AppKey("stalls", Stalls)
_HOP = frozenset(("connection", "content-length", "host", "keep-alive", "transfer-encoding"))


def _end_to_end(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, headers[name]) for name in headers if name.lower() not in _HOP)


async def relay(request: web.Request) -> web.StreamResponse:
    session, upstreams = request.app[SESSION], request.app[UPSTREAMS]
    upstreams.rotate(-1)
    upstream = upstreams[0]
    async with session.request(
        request.method,
        upstream + request.path_qs,
        data=await request.read(),
        headers=_end_to_end(CIMultiDict(request.headers)),
    ) as answer:
        headers = _end_to_end(CIMultiDict(answer.headers))
        if answer.content_length is not None:
            return web.Response(status=answer.status, headers=headers, body=await answer.read())
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        async for data, _ in answer.content.iter_chunks():
            await response.write(data)
        await response.write_eof()
        return response


async def _session(app: web.Application) -> None:
    app[SESSION] = ClientSession(
        connector=TCPConnector(limit=0),
        timeout=ClientTimeout(total=None),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
    )


async def _close(app: web.Application) -> None:
    await app[SESSION].close()


async def _watch(app: web.Application) -> AsyncIterator[None]:
    watching = asyncio.get_running_loop().create_task(app[STALLS].watch())
    yield
    watching.cancel()


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(text=request.app[STALLS].text())


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m bench.peers.aiohttp_proxy")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument(
        "--upstream", required=True, action="append", help="URL of a server; several: in turn"
    )
    args = flags.parse_args()
    app = web.Application(client_max_size=64 << 20)
    app[UPSTREAMS] = deque(args.upstream)
    app[STALLS] = Stalls()
    app.on_startup.append(_session)
    app.on_cleanup.append(_close)
    app.cleanup_ctx.append(_watch)
    app.router.add_get("/metrics", _metrics)
    app.router.add_route("*", "/{path:.*}", relay)
    # As in production: no line of log for each request.
    web.run_app(app, host="127.0.0.1", port=args.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
