"""The endpoints that are answered here: what the gateway says about itself and its models."""

from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

import orjson

from gateway import __version__
from gateway.api import openapi
from gateway.api.endpoints import Endpoint
from gateway.errors import ClientError
from gateway.exchange import Exchange

JSON: Final = [(b"content-type", b"application/json")]
_PROMETHEUS: Final = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]


class About(Protocol):
    """What the gateway says about itself: ready-made bodies, from whoever knows."""

    async def models(self) -> bytes: ...

    async def ready(self) -> tuple[bool, bytes]: ...

    async def metrics(self) -> bytes: ...


class Local:
    """`aliases` are further names of models."""

    def __init__(self, about: About, aliases: Mapping[str, str]) -> None:
        self._about = about
        self._aliases = aliases
        self._document = orjson.dumps(openapi.document(__version__))

    async def models(self, exchange: Exchange, _endpoint: Endpoint, _name: str) -> None:
        listed = {"object": "list", "data": await self._cards()}
        exchange.respond(200, orjson.dumps(listed), JSON)

    async def model(self, exchange: Exchange, _endpoint: Endpoint, name: str) -> None:
        asked = unquote(name)
        card = next((card for card in await self._cards() if card["id"] == asked), None)
        if card is None:
            message = f"The model `{asked}` does not exist. GET /v1/models lists those served."
            raise ClientError(404, message, code="model_not_found", param="model")
        exchange.respond(200, orjson.dumps(card), JSON)

    async def health(self, exchange: Exchange, _endpoint: Endpoint, _name: str) -> None:
        exchange.respond(200, b'{"status":"ok"}', JSON)

    async def ready(self, exchange: Exchange, _endpoint: Endpoint, _name: str) -> None:
        is_ready, body = await self._about.ready()
        exchange.respond(200 if is_ready else 503, body, JSON)

    async def metrics(self, exchange: Exchange, _endpoint: Endpoint, _name: str) -> None:
        exchange.respond(200, await self._about.metrics(), _PROMETHEUS)

    async def openapi(self, exchange: Exchange, _endpoint: Endpoint, _name: str) -> None:
        exchange.respond(200, self._document, JSON)

    async def _cards(self) -> list[dict[str, Any]]:
        """The served models, and again under each of their other names."""
        cards = orjson.loads(await self._about.models())["data"]
        known = {card["id"]: card for card in cards}
        others = [
            known[name] | {"id": alias, "root": name}
            for alias, name in self._aliases.items()
            if name in known and alias not in known
        ]
        return [*cards, *others]
