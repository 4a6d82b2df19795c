"""Where every request enters: finds its row in the table of endpoints, and who answers it."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from gateway.api.endpoints import ENDPOINTS, REFUSED, Endpoint, Means, Style
from gateway.api.router import Router
from gateway.errors import ClientError, to_client_error
from gateway.exchange import Exchange
from gateway.handlers import Handlers
from gateway.request_ids import RequestIds
from gateway.tenancy.access import Access

log = logging.getLogger("forebay.routes")

OPEN = frozenset(("/health", "/ready", "/metrics", "/openapi.json"))
"""What needs no API key: for probes and scrapers. Keep the port from strangers."""

Local = Callable[[Exchange, Endpoint, str], Awaitable[None]]
"""Answers here, without an engine; gets the name in the path, if there is one."""


class Routes:
    """`local` has who answers, by path, for the endpoints that need no engine."""

    def __init__(self, handlers: Handlers, local: Mapping[str, Local], access: Access) -> None:
        self._handlers = handlers
        self._access = access
        self._local = local
        self._router = Router(ENDPOINTS)
        self._ids = RequestIds()

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        endpoint, name = self._router.find(request.path)
        if endpoint is None or request.path in REFUSED:
            self._name(exchange)
            exchange.refuse(self._unknown(request.path))
            return
        exchange.anthropic = endpoint.style is Style.ANTHROPIC
        if request.method != endpoint.method and not _is_head(request.method, endpoint):
            self._name(exchange)
            message = f"{request.path} takes {endpoint.method}, not {request.method}"
            error = ClientError(405, message, code="wrong_method")
            exchange.refuse(error, [(b"allow", endpoint.method.encode())])
            return
        try:
            if endpoint.means is Means.LOCAL:
                self._name(exchange)
                if request.path not in OPEN:
                    self._access.identify(request)
                await self._local[endpoint.path](exchange, endpoint, name)
            else:
                await self._handlers.shape(exchange, endpoint, name)
        except Exception as error:  # noqa: BLE001 - the edge of every endpoint
            _fail(exchange, error)

    def mark(self, exchange: Exchange) -> None:
        """Say of an exchange that is refused before it gets here what an answer has to have."""
        endpoint, _ = self._router.find(exchange.request.path)
        exchange.anthropic = endpoint is not None and endpoint.style is Style.ANTHROPIC
        self._name(exchange)

    def _name(self, exchange: Exchange) -> None:
        """Give an exchange that no story is told of its id."""
        exchange.named = ((b"x-request-id", self._ids.of(exchange.request).encode()),)

    def _unknown(self, path: str) -> ClientError:
        why = REFUSED.get(path)
        if why is not None:
            message = f"this gateway does not offer {path}: {why}"
        else:
            message = f"no such endpoint: {path}; there are {', '.join(self._router.paths)}"
        return ClientError(404, message, code="unknown_endpoint")


def _is_head(method: str, endpoint: Endpoint) -> bool:
    return method == "HEAD" and endpoint.method == "GET" and endpoint.means is Means.LOCAL


def _fail(exchange: Exchange, error: Exception) -> None:
    """A client always gets an answer, and we learn of our bugs."""
    told = to_client_error(error)
    if told.code == "internal_error":
        log.error("%s failed", exchange.request.path, exc_info=error)
    exchange.refuse(told)
