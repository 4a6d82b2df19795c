"""The routes of a simulated vLLM beside chats and completions."""

import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bench.fake_vllm.answers import Answer
from bench.fake_vllm.apis import (
    MessagesWire,
    ResponsesWire,
    anthropic_chat,
    messages_ask,
    response_messages,
    responses_ask,
)
from bench.fake_vllm.asks import Ask
from bench.fake_vllm.errors import Refused, json_response, unknown_model
from bench.fake_vllm.pooling import Pooling

if TYPE_CHECKING:
    from bench.fake_vllm.app import App

KEPT = 1000
"""Responses that are stored; a real vLLM keeps them all."""


class More:
    """Handlers of one simulated server; responses are stored in it, as vLLM's are."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._reader = app.reader
        self._pooling = Pooling(app.options.model, app.reader, app.options.max_model_len)
        self._stored: dict[str, list[dict[str, Any]]] = {}

    def routes(self) -> list[web.RouteDef]:
        posts = {
            "/v1/responses": self._responses,
            "/v1/responses/{id}/cancel": self._cancel,
            "/v1/messages": self._messages,
            "/v1/messages/count_tokens": self._count,
            "/v1/embeddings": self._pooled("embeddings"),
            "/pooling": self._pooled("pooling"),
            "/classify": self._pooled("classify"),
            "/score": self._pooled("score"),
            "/v1/score": self._pooled("score"),
            "/rerank": self._pooled("rerank"),
            "/v1/rerank": self._pooled("rerank"),
            "/v2/rerank": self._pooled("rerank"),
            "/v1/audio/transcriptions": self._transcribe,
        }
        routes = [web.post(path, handler) for path, handler in posts.items()]
        return [*routes, web.get("/v1/responses/{id}", self._retrieve)]

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        body = await self._app.accept(request)
        before = body.get("previous_response_id")
        if before is not None and before not in self._stored:
            raise _not_found(before)
        response_id = body.get("request_id") or f"resp_{uuid.uuid4().hex}"
        history = self._stored[before] if before is not None else []
        ask = responses_ask(self._reader, body, history)
        if body.get("store", True):
            self._stored[response_id] = history + response_messages(body)
            while len(self._stored) > KEPT:
                del self._stored[next(iter(self._stored))]

        def wire(model: str, ask: Ask, answers: list[Answer]) -> ResponsesWire:
            return ResponsesWire(model, ask, answers, response_id)

        return await self._app.answer(request, ask, wire)

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        if name not in self._stored:
            raise _not_found(name)
        return json_response({"id": name, "object": "response", "status": "completed"})

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        if name not in self._stored:
            raise _not_found(name)
        raise Refused("Cannot cancel a synchronous response.", "response_id")

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = await self._app.accept(request)
        return await self._app.answer(request, messages_ask(self._reader, body), MessagesWire)

    async def _count(self, request: web.Request) -> web.StreamResponse:
        body = await self._app.accept(request)
        tokens = len(self._reader.tokenize(anthropic_chat(body)))
        management = {"original_input_tokens": tokens}
        return json_response({"input_tokens": tokens, "context_management": management})

    def _pooled(self, name: str) -> Any:
        compute = getattr(self._pooling, name)

        async def handle(request: web.Request) -> web.StreamResponse:
            return json_response(compute(await self._app.accept(request)))

        return handle

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        try:
            form = await request.post()
        except (HttpProcessingError, ValueError) as error:
            raise Refused("There was an error parsing the body", type="Bad Request") from error
        model = form.get("model")
        if model not in (None, self._app.options.model):
            raise unknown_model(model)
        audio = form.get("file")
        if not isinstance(audio, web.FileField):
            raise Refused("1 validation error:\n  'file' is required.", "body.file")
        self._app.received += 1
        size = len(audio.file.read())
        usage = {"type": "duration", "seconds": size // 32_000 + 1}
        return json_response({"text": f"{size} bytes of sound", "usage": usage})


def _not_found(response_id: str) -> Refused:
    message = f"Response with id '{response_id}' not found."
    return Refused(message, "response_id", "invalid_request_error", 404)
