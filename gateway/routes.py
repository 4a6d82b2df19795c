"""The table of endpoints: which path answers which method, and with what."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from gateway.errors import ClientError, to_client_error
from gateway.exchange import Exchange
from gateway.handlers import Handlers
from gateway.tokenization import Tokenization
from tokenizer_pool.types import Kind

log = logging.getLogger("forebay.routes")

Endpoint = Callable[[Exchange], Awaitable[None]]

_JSON = [(b"content-type", b"application/json")]
_PROMETHEUS = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]


class About(Protocol):
    """What the gateway says about itself: ready-made bodies, from whoever knows."""

    async def models(self) -> bytes: ...

    async def ready(self) -> tuple[bool, bytes]: ...

    async def metrics(self) -> bytes: ...


class Routes:
    """Finds the endpoint of an exchange and runs it."""

    def __init__(self, handlers: Handlers, tokenization: Tokenization, about: About) -> None:
        self._about = about
        self._table: dict[str, tuple[str, Endpoint]] = {
            "/v1/chat/completions": ("POST", partial(handlers.shape, kind=Kind.CHAT)),
            "/v1/completions": ("POST", partial(handlers.shape, kind=Kind.COMPLETION)),
            "/tokenize": ("POST", tokenization.tokenize),
            "/detokenize": ("POST", tokenization.detokenize),
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
            try:
                await endpoint(exchange)
            except Exception as error:  # noqa: BLE001 - the edge of every endpoint
                _fail(exchange, error)

    async def _models(self, exchange: Exchange) -> None:
        exchange.respond(200, await self._about.models(), _JSON)

    async def _health(self, exchange: Exchange) -> None:
        exchange.respond(200, b'{"status":"ok"}', _JSON)

    async def _ready(self, exchange: Exchange) -> None:
        is_ready, body = await self._about.ready()
        exchange.respond(200 if is_ready else 503, body, _JSON)

    async def _scrape(self, exchange: Exchange) -> None:
        exchange.respond(200, await self._about.metrics(), _PROMETHEUS)


def _fail(exchange: Exchange, error: Exception) -> None:
    """A client always gets an answer, and we learn of our bugs."""
    told = to_client_error(error)
    if told.code == "internal_error":
        log.error("%s failed", exchange.request.path, exc_info=error)
    exchange.refuse(told)
