"""A small server that speaks vLLM's API on a real socket and can be told to misbehave.

Not an engine model: it answers at once, by rules that a test can read here. Its tokenizer makes
one id of each word.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from backends.types import BackendSpec


@dataclass
class Engine:
    """The server's behaviour, changed by the test at any time, and what it saw."""

    version: str = "0.32.0"
    models: tuple[str, ...] = ("m",)
    adapters: tuple[str, ...] = ()
    offers_tokenize: bool = True
    chat_ids: str = "taken"  # taken | ignored | refused | lied | busy | untold
    completion_ids: str = "taken"
    refuse: dict[str, int] = field(default_factory=dict)  # path → status
    hanging: bool = False
    failing_streams: bool = False
    metrics: str = ""
    first_token_delays: list[float] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)

    def spec(self, name: str = "b1", **more: Any) -> BackendSpec:
        return BackendSpec(name=name, url=f"http://127.0.0.1:{self.port}", **more)

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [document for seen, document in self.requests if seen == path]

    def generations(self) -> int:
        return len(self.asked("/v1/chat/completions")) + len(self.asked("/v1/completions"))

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["Engine"]:
        app = web.Application(middlewares=[self._note])
        app.add_routes(
            [
                web.get("/version", self._version),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        document = await request.json() if request.can_read_body else {}
        self.requests.append((request.path, document))
        async with self.seen:
            self.seen.notify_all()
        if request.path in self.refuse:
            return web.json_response({}, status=self.refuse[request.path])
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self.metrics)

    async def _models(self, _: web.Request) -> web.Response:
        cards = [{"id": name, "root": f"/w/{name}", "max_model_len": 4096} for name in self.models]
        cards += [{"id": name, "root": "/l", "parent": self.models[0]} for name in self.adapters]
        return web.json_response({"object": "list", "data": cards})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if not self.offers_tokenize:
            raise web.HTTPNotFound
        document = await request.json()
        text = document.get("prompt") or _rendered(document["messages"])
        return web.json_response({"tokens": _encode(text)})

    async def _chat(self, request: web.Request) -> web.Response:
        document = await request.json()
        given = document.get("kv_transfer_params", {}).get("prompt_token_ids")
        rendered = _encode(_rendered(document["messages"]))
        answer = await self._generate(rendered, given, self.chat_ids, returned_in_choice=False)
        return self._streamed(answer) if document.get("stream") else answer

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        document = await request.json()
        if document.get("stream") and document.get("max_tokens") != 1:
            return await self._stream(request)
        prompt = document["prompt"]
        given = prompt if isinstance(prompt, list) else None
        text = [] if given else _encode(prompt)
        answer = await self._generate(text, given, self.completion_ids, returned_in_choice=True)
        return self._streamed(answer) if document.get("stream") else answer

    def _streamed(self, answer: web.Response) -> web.Response:
        """The same as events: a token, the usage, the end; or an error after the head."""
        if answer.status != 200:
            return answer
        data = b'data: {"choices": [{}]}\n\ndata: %b\n\ndata: [DONE]\n\n' % answer.body
        if self.failing_streams:
            data = b'data: {"error": {"code": 500}}\n\ndata: [DONE]\n\n'
        return web.Response(body=data, content_type="text/event-stream")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Tokens without end, also while new requests hang."""
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"data: x\n\n")
            await asyncio.sleep(0.01)

    async def _generate(
        self, text: list[int], given: list[int] | None, ids: str, *, returned_in_choice: bool
    ) -> web.Response:
        if self.hanging:
            await asyncio.Event().wait()
        if self.first_token_delays:
            await asyncio.sleep(self.first_token_delays.pop(0))
        used = text
        if given is not None:
            if ids in ("refused", "busy"):
                return web.json_response({"error": {}}, status=400 if ids == "refused" else 503)
            used = text if ids == "ignored" else given
        returned = [1] * len(used) if ids == "lied" else used
        told = {} if ids == "untold" else {"prompt_token_ids": returned}
        choice = {"index": 0, "text": "x", **(told if returned_in_choice else {})}
        answer = {"choices": [choice], "usage": {"prompt_tokens": len(used)}}
        return web.json_response(answer if returned_in_choice else {**answer, **told})


def _rendered(messages: list[dict[str, Any]]) -> str:
    return " ".join(["<start>", *(str(message["content"]) for message in messages), "<answer>"])


def _encode(text: str) -> list[int]:
    return [sum(word.encode()) % 1000 for word in text.split()]
