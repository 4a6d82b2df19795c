"""Refusals in the shape of vLLM's own (`entrypoints/serve/exception_handling`)."""

from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web


@dataclass
class Refused(Exception):
    """The request is answered with this error."""

    message: str
    param: str | None = None
    type: str = "BadRequestError"
    status: int = 400

    def response(self) -> web.Response:
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.status,
        }
        return json_response({"error": error}, self.status)


def unknown_model(name: object) -> Refused:
    return Refused(f"The model `{name}` does not exist.", "model", "NotFoundError", 404)


def too_long(tokens: int, limit: int) -> Refused:
    return Refused(
        f"This model's maximum context length is {limit} tokens. However, your prompt contains "
        f"{tokens} input tokens, which exceeds this limit even without any output tokens. "
        "Please reduce the length of the input prompt.",
        "input_tokens",
    )


def busy() -> Refused:
    return Refused(
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        type="Service Unavailable",
        status=503,
    )


def json_response(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")
