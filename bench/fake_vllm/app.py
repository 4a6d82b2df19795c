"""The routes of a simulated vLLM server, as an aiohttp application."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from bench.engine import Engine
from bench.fake_vllm.answers import Answer, Answers
from bench.fake_vllm.asks import Ask, Reader
from bench.fake_vllm.errors import Refused, busy, json_response
from bench.fake_vllm.exchange import Cut, Exchange
from bench.fake_vllm.faults import Faults, Mode
from bench.fake_vllm.metrics import exposition
from bench.fake_vllm.more import More
from bench.fake_vllm.options import VERSION, Options
from bench.fake_vllm.prompts import Prompts
from bench.fake_vllm.pump import Pump
from bench.fake_vllm.wire import ChatWire, CompletionWire, Wire

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WireMaker = Callable[[str, Ask, list[Answer]], Wire]

MAX_BODY = 64 * 1024**2

TOKENIZED_BESIDE = 4096
"""Letters of a prompt from which on its tokenizing would hold the engine's steps up: 2 ms."""


class App:
    """One simulated server's state and handlers. Make it inside a running event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.engine = Engine(options.engine)
        self.faults = Faults()
        self.finished: Counter[str] = Counter(stop=0, length=0, abort=0)
        """Requests by how they ended."""
        self.received = 0
        """Chat and completion requests that came in, refused ones included."""
        self.last: dict[str, Any] = {}
        """The body of the last one that could be parsed."""
        self._prompts = Prompts(options.tokenizer, media_tokens=options.media_tokens)
        self._answers = Answers(self._prompts)
        self.reader = Reader(options, self._prompts, self.faults)
        # vLLM's default: one renderer.
        self._renderer = ThreadPoolExecutor(1, "renderer")
        self._pump = Pump(self.engine, asyncio.get_running_loop())
        self._ids = itertools.count()
        self._started = int(time.time())

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._edge])
        app.on_cleanup.append(self._end)
        app.add_routes(More(self).routes())
        if not self.options.pooling:
            app.add_routes(
                [
                    web.post("/v1/chat/completions", self._chat),
                    web.post("/v1/completions", self._completion),
                ]
            )
        app.add_routes(
            [
                web.post("/tokenize", self._tokenize),
                web.post("/detokenize", self._detokenize),
                web.get("/v1/models", self._models),
                web.get("/version", self._version),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.post("/fake/fail", self._fail),
                web.get("/fake/seen", self._seen),
            ]
        )
        return app

    async def _end(self, _app: web.Application) -> None:
        self._renderer.shutdown(wait=False)

    @web.middleware
    async def _edge(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/fake/") and self.faults.hit(Mode.REFUSE):
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable
        try:
            return await handler(request)
        except Refused as refused:
            return refused.response()
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as trouble:
            # vLLM validates every field; what only fails on use here is refused all the same.
            return Refused(f"1 validation error:\n  {trouble}", type="Bad Request").response()
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as unknown:
            return json_response({"detail": unknown.reason}, unknown.status)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self.accept(request)
        return await self.answer(request, await self._read(self.reader.chat, body), ChatWire)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await self.accept(request)
        ask = await self._read(self.reader.completion, body)
        return await self.answer(request, ask, CompletionWire)

    async def _read(self, read: Callable[[dict[str, Any]], Ask], body: dict[str, Any]) -> Ask:
        """A long text is tokenized beside the loop, as in vLLM: the engine's steps go on."""
        if _letters(body) < TOKENIZED_BESIDE:
            return read(body)
        return await asyncio.get_running_loop().run_in_executor(self._renderer, read, body)

    async def accept(self, request: web.Request) -> dict[str, Any]:
        """A request's body, counted and kept; raises Refused."""
        self.received += 1
        if request.content_type != "application/json":
            raise Refused("1 validation error:\n  Unsupported Media Type", type="Bad Request")
        self.last = self.reader.parse(await request.read())
        limit = self.options.max_num_queued_reqs
        unfinished = self.engine.running + self.engine.waiting
        if self.faults.hit(Mode.BUSY) or (limit is not None and unfinished >= limit):
            raise busy()
        return self.last

    async def answer(self, request: web.Request, ask: Ask, wire: WireMaker) -> web.StreamResponse:
        """Let the engine answer, whole or as a stream."""
        if self.faults.hit(Mode.HANG):
            await asyncio.Event().wait()
        answers = [
            self._answers.compose(prompt, tokens, endless=ask.endless)
            for prompt, tokens in zip(ask.prompts, ask.max_tokens, strict=True)
        ]
        exchange = Exchange(
            ask,
            answers,
            wire(self.options.model, ask, answers),
            transport=request.transport,
            cut=self._cut(),
        )
        if not ask.stream:
            rest = await self._run(ask, answers, exchange)
            return web.Response(body=rest, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write_eof(await self._run(ask, answers, exchange))
        return response

    def _cut(self) -> Cut | None:
        if self.faults.hit(Mode.HANG_AFTER_FIRST):
            return Cut(1, reset=False)
        if self.faults.hit(Mode.RESET_MID_STREAM):
            return Cut(2, reset=True)
        return None

    async def _run(self, ask: Ask, answers: list[Answer], exchange: Exchange) -> bytes:
        """Let the engine serve all choices; a client that leaves aborts them."""
        names = [str(next(self._ids)) for _ in answers]
        for index, (name, answer) in enumerate(zip(names, answers, strict=True)):
            prompt = ask.prompts[index]
            self._pump.submit(
                name, len(prompt), len(answer.ids), exchange.sink(index), self._prefix(prompt)
            )
        reason = "abort"
        try:
            rest = await exchange.done
            reason = answers[0].finish_reason
            return rest
        finally:
            self.finished[reason] += 1
            for name in names:
                self._pump.cancel(name)

    def _prefix(self, prompt: list[int]) -> list[int]:
        """Chained hashes of the prompt's full blocks, as vLLM's prefix cache has them."""
        if not self.options.prefix_caching:
            return []
        size = self.options.engine.block_tokens
        hashes: list[int] = []
        chain = 0
        for start in range(0, len(prompt) - size + 1, size):
            chain = hash((chain, *prompt[start : start + size]))
            hashes.append(chain)
        return hashes

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = self.reader.parse(await request.read())
        ids = self.reader.tokenize(body)
        wants_strings = body.get("return_token_strs")
        strings = [self._prompts.tokenizer.id_to_token(token) for token in ids]
        return json_response(
            {
                "count": len(ids),
                "max_model_len": self.options.max_model_len,
                "tokens": ids,
                "token_strs": strings if wants_strings else None,
            }
        )

    async def _detokenize(self, request: web.Request) -> web.StreamResponse:
        body = self.reader.parse(await request.read())
        tokens = body.get("tokens")
        ids = tokens if tokens == [] else self.reader.checked(tokens, "tokens")
        return json_response({"prompt": self._prompts.decode(ids, special=True)})

    async def _models(self, _request: web.Request) -> web.StreamResponse:
        card = {
            "id": self.options.model,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": str(self.options.tokenizer),
            "parent": None,
            "permission": [],
        }
        base = {**card, "max_model_len": self.options.max_model_len}
        adapters = [
            card | {"id": name, "root": f"/loras/{name}", "parent": self.options.model}
            for name in self.options.adapters
        ]
        return json_response({"object": "list", "data": [base, *adapters]})

    async def _version(self, _request: web.Request) -> web.StreamResponse:
        return json_response({"version": VERSION})

    async def _health(self, _request: web.Request) -> web.StreamResponse:
        return web.Response()

    async def _metrics(self, _request: web.Request) -> web.StreamResponse:
        text = exposition(self.engine, self.options, self.finished)
        return web.Response(text=text, content_type="text/plain")

    async def _fail(self, request: web.Request) -> web.StreamResponse:
        """`{"mode": ..., "times": N, "seconds": S}`: see faults.Mode; "none" ends it."""
        body = await request.json()
        try:
            mode = Mode(body.get("mode"))
        except ValueError as error:
            raise Refused(f"mode must be one of {', '.join(Mode)}", "mode") from error
        self.fail(mode, times=body.get("times"), seconds=body.get("seconds", 1.0))
        return json_response({"mode": self.faults.mode})

    def fail(self, mode: Mode, *, times: int | None = None, seconds: float = 1.0) -> None:
        """Do this wrong from now on, or `times` times; SLOW_START ends with the next step."""
        if mode is Mode.SLOW_START:
            self.engine.stall(seconds)
        else:
            self.faults.set(mode, times)

    async def _seen(self, _request: web.Request) -> web.StreamResponse:
        return json_response(
            {"received": self.received, "finished": dict(self.finished), "last": self.last}
        )


def _letters(body: dict[str, Any]) -> int:
    """About how long the prompt is as text; ids have none."""
    return sum(len(str(body[name])) for name in ("messages", "prompt") if _is_text(body.get(name)))


def _is_text(prompt: object) -> bool:
    """A text, or messages: anything but a list of ids."""
    return isinstance(prompt, str) or (
        isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
    )
