"""The process behind every gateway: just enough of vLLM's API, answered at once or at a set pace.

`python -m bench.overhead.engine` says in one JSON line where it listens. Prompts that come as
text are counted by their bytes, four to a token: an engine that tokenized would be the bottleneck.
Each answer says in `x-engine-us` how long the engine kept the request before the first byte, so
that the inexactness of timers is no gateway's. Not here: a model of an engine (bench/fake_vllm).
"""

import asyncio
import json
import signal
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, cast

import httptools
import orjson
import uvloop

from bench.fake_vllm.options import TOKENIZER, VERSION
from bench.fake_vllm.prompts import Prompts
from bench.overhead import answers

HOST = "127.0.0.1"
MAX_MODEL_LEN = 32_768
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(slots=True)
class Engine:
    """`prefill` and `gap` (between tokens) are in seconds; 0 answers without a timer.

    `by_ids` and `by_text` count generating requests by how their prompt came.
    """

    prompts: Prompts
    prefill: float = 0.0
    gap: float = 0.0
    by_ids: int = 0
    by_text: int = 0

    def tell(self, path: str, body: bytes) -> bytes:
        """The answer to everything but generation."""
        match path:
            case "/version":
                return answers.document({"version": VERSION})
            case "/health":
                return answers.document({})
            case "/v1/models":
                return answers.document({"object": "list", "data": [_card()]})
            case "/metrics":
                return answers.page("vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
            case "/tokenize":
                ids = self._tokenize(orjson.loads(body))
                found = {"count": len(ids), "max_model_len": MAX_MODEL_LEN, "tokens": ids}
                return answers.document(found)
            case "/pace":
                pace = orjson.loads(body)
                self.prefill, self.gap = pace["prefill"], pace["gap"]
                return answers.document({"by_ids": self.by_ids, "by_text": self.by_text})
        return answers.document({"detail": "Not Found"}, status=404)

    def _tokenize(self, body: dict[str, Any]) -> list[int]:
        chat = "messages" in body
        text = self.prompts.render(body) if chat else body["prompt"]
        return self.prompts.encode(text, special=body.get("add_special_tokens", not chat))

    def prompt(self, body: dict[str, Any], size: int) -> tuple[int, list[int] | None]:
        """A prompt's tokens, and its ids where it came as ids; `size` is the body's, in bytes."""
        ids = (body.get("kv_transfer_params") or {}).get("prompt_token_ids") or body.get("prompt")
        if isinstance(ids, list):
            self.by_ids += 1
            return len(ids), ids
        self.by_text += 1
        return size // 4, None


def _card() -> dict[str, Any]:
    return {
        "id": answers.MODEL,
        "object": "model",
        "root": str(TOKENIZER),
        "parent": None,
        "max_model_len": MAX_MODEL_LEN,
    }


class Connection(asyncio.Protocol):
    """One gateway's connection; it sends one request at a time, as HTTP/1.1 clients do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        arrived = perf_counter_ns()
        path, body = self._url.decode(), b"".join(self._body)
        self._url, self._body = b"", []
        if path not in (_CHAT, _COMPLETIONS):
            self._transport.write(self._engine.tell(path, body))
            return
        ask = orjson.loads(body)
        prompt_tokens, ids = self._engine.prompt(ask, len(body))
        answer = Answer(arrived, path, ask, prompt_tokens, ids)
        if self._engine.prefill:
            self._timer = self._loop.call_later(self._engine.prefill, self._begin, answer)
        else:
            self._begin(answer)

    def _begin(self, answer: "Answer") -> None:
        engine_us = (perf_counter_ns() - answer.arrived) // 1000
        if not answer.ask.get("stream"):
            self._transport.write(answer.whole(engine_us))
        elif self._engine.gap:
            self._transport.write(answers.opening(engine_us) + answer.token(0))
            self._token_later(answer, 1, self._loop.time() + self._engine.gap)
        else:
            tokens = b"".join(answer.token(number) for number in range(answer.tokens))
            self._transport.write(answers.opening(engine_us) + tokens + answer.closing())

    def _token_later(self, answer: "Answer", number: int, at: float) -> None:
        if number == answer.tokens:
            self._transport.write(answer.closing())
        else:
            self._timer = self._loop.call_at(at, self._token, answer, number, at)

    def _token(self, answer: "Answer", number: int, at: float) -> None:
        self._transport.write(answer.token(number))
        self._token_later(answer, number + 1, at + self._engine.gap)


@dataclass(frozen=True, slots=True)
class Answer:
    """One generating request and what it gets. `arrived` is in nanoseconds."""

    arrived: int
    path: str
    ask: dict[str, Any]
    prompt_tokens: int
    ids: list[int] | None

    @property
    def tokens(self) -> int:
        return self.ask.get("max_tokens") or 16

    def token(self, number: int) -> bytes:
        return answers.token(last=number == self.tokens - 1)

    def closing(self) -> bytes:
        wants_usage = bool((self.ask.get("stream_options") or {}).get("include_usage"))
        return answers.closing(self.prompt_tokens, self.tokens, include_usage=wants_usage)

    def whole(self, engine_us: int) -> bytes:
        ids = self.ids if self.ask.get("return_token_ids") else None
        make = answers.chat if self.path == _CHAT else answers.completion
        fields = make(self.prompt_tokens, self.tokens, ids)
        return answers.document(fields, engine_us=engine_us)


async def serve() -> None:
    """Say where it listens, and serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    engine = Engine(Prompts(TOKENIZER))
    server = await loop.create_server(lambda: Connection(engine), HOST, 0)
    async with server:
        print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
