"""The admin listener: the live page at `/ui`, its files, and its server-sent events.

An address of its own, so that what operators see is not where clients are. Read-only.
"""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from aiohttp import web

from gateway.ui.broadcast import TooManyPages, event
from gateway.ui.page import Page

STATIC = {
    "index.html": "text/html",
    "style.css": "text/css",
    "app.js": "text/javascript",
    "chart.js": "text/javascript",
    "dom.js": "text/javascript",
    "views.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
RETRY = {"retry-after": "5"}
STOP_WITHIN = 1.0
"""Seconds that open pages get to take their last bytes."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminTaken(OSError):
    """Something else listens on the admin address."""


class Listener:
    """Serves one page on one address."""

    def __init__(self, page: Page) -> None:
        self._page = page
        application = web.Application()
        application.on_response_prepare.append(_secure)
        application.router.add_get("/", _to_page)
        application.router.add_get("/ui", _file("index.html"))
        application.router.add_get("/ui/events", self._events)
        for name in STATIC:
            application.router.add_get(f"/ui/{name}", _file(name))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=STOP_WITHIN)

    async def listen(self, host: str, port: int) -> int:
        """Begin to serve; returns the port. Raises AdminTaken."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            raise AdminTaken(
                f"cannot open the admin listener on {host}:{port} ({error.strerror or error}); "
                "choose another port with admin.port"
            ) from error
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        self._page.broadcast.close()
        await self._runner.cleanup()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """All that there is, then what is new, until the page is closed."""
        try:
            reader = self._page.broadcast.open()
        except TooManyPages:
            return web.Response(status=503, text="too many pages are open", headers=RETRY)
        try:
            response = web.StreamResponse()
            response.content_type = "text/event-stream"
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n" + event("hello", self._page.hello()))
            while (data := await reader.next()) is not None:
                await response.write(data)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            self._page.broadcast.leave(reader)
        return response


def _file(name: str) -> Handler:
    """Read once: these files are part of the program."""
    body = files("gateway.ui").joinpath("static", name).read_bytes()

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=STATIC[name], charset="utf-8")

    return answer


async def _to_page(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/ui")


async def _secure(_request: web.Request, response: web.StreamResponse) -> None:
    """Nothing of another origin may be loaded into the page, nor the page into another."""
    response.headers.update(HEADERS)
