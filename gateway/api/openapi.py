"""The document at /openapi.json, made from the table of endpoints: what is served, and no more."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.api.endpoints import ENDPOINTS, Endpoint, Means, Style
from gateway.api.schemas import ANSWERS, BODIES
from gateway.api.waiting import HEADER

_TEXT_ENDPOINTS: Final = frozenset({"/metrics"})
_OWN_ERRORS: Final = {
    400: "The request is wrong; the message says where.",
    404: "No such model, endpoint or stored response.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    429: "A limit is reached; `Retry-After` says when to come back.",
    431: "The headers are too large.",
    500: "A bug; the log has it under the `x-request-id`.",
    503: "No engine can take the request now; `Retry-After` says when to come back.",
}
_RELAYED_ERRORS: Final = {
    401: "The key is not known.",
    403: "The key may not do this.",
    415: "The engine does not read this content type.",
    422: "The engine understood the request but cannot do it.",
    501: "The model does not do this.",
    502: "An engine failed.",
    504: "An engine was too slow.",
}


def document(version: str, endpoints: Iterable[Endpoint] = ENDPOINTS) -> dict[str, Any]:
    """The OpenAPI 3.1 description of these endpoints."""
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": version,
            "description": "A request-shaping gateway in front of vLLM. Fields that are not "
            "listed here go to vLLM, but for those that clients may not set.",
        },
        "paths": paths,
        "components": {"schemas": {**BODIES, **ANSWERS}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    name = endpoint.path.strip("/").translate({ord(c): "_" for c in "/{}."})
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{name}",
        "summary": endpoint.summary,
        "responses": _responses(endpoint),
    }
    if parameters := _parameters(endpoint):
        operation["parameters"] = parameters
    if endpoint.accepts:
        kind = "multipart/form-data" if endpoint.multipart else "application/json"
        operation["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": _ref(endpoint.accepts)}},
        }
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found = []
    _, brace, rest = endpoint.path.partition("{")
    if brace:
        schema = {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_.-]+$"}
        found.append(
            {"name": rest.partition("}")[0], "in": "path", "required": True, "schema": schema}
        )
    if endpoint.generates:
        found += [
            _seconds("x-request-timeout", "The client waits so long for its first token.", "[1-9]"),
            _seconds(HEADER.decode(), "Between comments in a stream that waits."),
        ]
    return found


def _seconds(name: str, description: str, first: str = "[0-9]") -> dict[str, Any]:
    schema = {"type": "string", "pattern": rf"^{first}[0-9]{{0,3}}(\.[0-9]{{1,3}})?$"}
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    told: dict[int, str] = dict(_OWN_ERRORS)
    if endpoint.means is not Means.LOCAL or endpoint.accepts:
        told |= _RELAYED_ERRORS
    answers = {"200": {"description": "The answer.", "content": _content(endpoint)}}
    error = _errors(endpoint)
    for status in sorted(told):
        answers[str(status)] = {"description": told[status], "content": error}
    if endpoint.path == "/ready":
        answers["503"] = {"description": "No engine is ready.", "content": _content(endpoint)}
    return answers


def _content(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.path in _TEXT_ENDPOINTS:
        return {"text/plain": {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": _ref("Answer")}}
    if endpoint.generates or endpoint.means in (Means.PASSED, Means.HELD):
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return content


def _errors(endpoint: Endpoint) -> Mapping[str, Any]:
    """vLLM's own validation speaks OpenAI's way everywhere, and of what a model does not do it
    knows no path."""
    schemas = [_ref("Error")]
    if endpoint.style is Style.ANTHROPIC:
        schemas.append(_ref("AnthropicError"))
    if endpoint.means is not Means.LOCAL:
        schemas.append(_ref("NotOffered"))
    return {"application/json": {"schema": {"anyOf": schemas}}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
