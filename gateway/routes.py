"""The table of endpoints: which path answers which method, and with what."""

import logging
from collections.abc import Awaitable, Callable
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
        self._handlers = handlers
        self._about = about
        self._table: dict[str, tuple[str, Endpoint]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
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
            await self._run(endpoint, exchange)

    async def _run(self, endpoint: Endpoint, exchange: Exchange) -> None:
        """The edge of every endpoint: a client always gets an answer, and we learn of our bugs."""
        try:
            await endpoint(exchange)
        except Exception as error:
            told = to_client_error(error)
            if told.code == "internal_error":
                log.exception("%s failed", exchange.request.path)
            exchange.refuse(told)

    async def _chat(self, exchange: Exchange) -> None:
        await self._handlers.shape(exchange, Kind.CHAT)

    async def _completions(self, exchange: Exchange) -> None:
        await self._handlers.shape(exchange, Kind.COMPLETION)

    async def _models(self, exchange: Exchange) -> None:
        exchange.respond(200, await self._about.models(), _JSON)

    async def _health(self, exchange: Exchange) -> None:
        exchange.respond(200, b'{"status":"ok"}', _JSON)

    async def _ready(self, exchange: Exchange) -> None:
        is_ready, body = await self._about.ready()
        exchange.respond(200 if is_ready else 503, body, _JSON)

    async def _scrape(self, exchange: Exchange) -> None:
        exchange.respond(200, await self._about.metrics(), _PROMETHEUS)
