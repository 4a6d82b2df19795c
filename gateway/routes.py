"""The table of endpoints: which path answers which method, and with what."""

from collections.abc import Awaitable, Callable

from gateway.errors import ClientError
from gateway.exchange import Exchange
from gateway.handlers import Handlers
from gateway.metrics import Metrics
from gateway.status import Status
from tokenizer_pool.types import Kind

_JSON = [(b"content-type", b"application/json")]
_PROMETHEUS = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]


class Routes:
    """Finds the endpoint of an exchange and runs it."""

    def __init__(self, handlers: Handlers, status: Status, metrics: Metrics) -> None:
        self._handlers = handlers
        self._status = status
        self._metrics = metrics
        self._table: dict[str, tuple[str, Callable[[Exchange], Awaitable[None]]]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._scrape),
        }

    async def __call__(self, exchange: Exchange) -> None:
        path = exchange.request.path
        method, endpoint = self._table.get(path, ("", None))
        asked = exchange.request.method
        if endpoint is None:
            message = f"no such endpoint: {path}; there are {', '.join(self._table)}"
            exchange.refuse(ClientError(404, message, code="unknown_endpoint"))
        elif asked != method and (asked, method) != ("HEAD", "GET"):
            error = ClientError(405, f"{path} takes {method}, not {asked}", code="wrong_method")
            exchange.refuse(error, [(b"allow", method.encode())])
        else:
            await endpoint(exchange)

    async def _chat(self, exchange: Exchange) -> None:
        await self._handlers.shape(exchange, Kind.CHAT)

    async def _completions(self, exchange: Exchange) -> None:
        await self._handlers.shape(exchange, Kind.COMPLETION)

    async def _models(self, exchange: Exchange) -> None:
        exchange.respond(200, self._status.models(), _JSON)

    async def _health(self, exchange: Exchange) -> None:
        exchange.respond(200, b'{"status":"ok"}', _JSON)

    async def _ready(self, exchange: Exchange) -> None:
        is_ready, body = self._status.ready()
        exchange.respond(200 if is_ready else 503, body, _JSON)

    async def _scrape(self, exchange: Exchange) -> None:
        exchange.respond(200, self._metrics.render(), _PROMETHEUS)
