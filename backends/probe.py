"""Questions to one server, over connections of their own, and what the answers prove.

Lives here: what a server is (version, models, working endpoints), its tokenizer, and one real
token as a sign of life. Not here: the proof of the id channels (`channels`), when to ask
(`lifecycle`), and any client's request.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from backends.errors import NotServing
from backends.patience import Patience
from backends.types import BackendSpec, ServedModel

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
BUSY = frozenset((429, 503))
"""vLLM's own queue limit answers 503: it is alive, and asked too much at the moment."""

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read at most; a large vLLM's metrics page has about one million."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and the JSON object that came with it (empty for anything else)."""

    status: int
    document: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def busy(self) -> bool:
        return self.status in BUSY


class Probe:
    """Asks one server. To be made inside a running event loop and closed after use.

    `timeout` bounds each question as a whole, in seconds. All questions raise NotServing when no
    HTTP answer came in time.
    """

    def __init__(self, spec: BackendSpec, *, timeout: float = 10.0) -> None:
        self.spec = spec
        headers = {"content-type": "application/json"}
        if spec.api_key is not None:
            headers["authorization"] = f"Bearer {spec.api_key}"
        self._url = spec.url.rstrip("/")
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            headers=headers,
            # A fresh connection each time: that the server still accepts is part of the answer.
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(),  # none: `Patience` limits the whole
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def ask(
        self, path: str, document: dict[str, Any] | None = None, *, within: float | None = None
    ) -> Answer:
        """POST the document, or GET without one, `within` seconds if not the probe's timeout."""
        status, data = await self._exchange(path, document, within)
        return Answer(status, _json_object(data))

    async def page(self, path: str) -> bytes | None:
        """GET something that is not JSON; None when it is not offered."""
        status, data = await self._exchange(path, None, None)
        return data if status == 200 else None

    async def version(self) -> str | None:
        """What `/version` says; None where it says nothing, for now or for ever."""
        answer = await self.ask("/version")
        version = answer.document.get("version")
        return version if answer.ok and isinstance(version, str) else None

    async def healthy(self) -> bool:
        """What `/health` claims. Says nothing about whether tokens come: see `one_token`."""
        return (await self.ask("/health")).ok

    async def models(self) -> tuple[ServedModel, ...]:
        """What `/v1/models` lists, base models and LoRA adapters alike."""
        answer = await self.ask("/v1/models")
        cards = answer.document.get("data")
        if not answer.ok or not isinstance(cards, list):
            raise NotServing(self.spec.name, f"/v1/models answered {answer.status}")
        models = tuple(_model(card) for card in cards if isinstance(card, dict) and "id" in card)
        if not models:
            raise NotServing(self.spec.name, "/v1/models lists no model")
        return models

    async def tokenize(self, model: str, **question: Any) -> list[int] | None:
        """The ids that the server itself makes of `prompt=` or of `messages=` (and `tools=`).

        None when the server does not offer `/tokenize` or refuses the question.
        """
        answer = await self.ask("/tokenize", {"model": model, **question})
        tokens = answer.document.get("tokens")
        if not answer.ok or not isinstance(tokens, list):
            return None
        return tokens if all(type(token) is int for token in tokens) else None

    async def one_token(self, path: str, model: str, *, within: float | None = None) -> Answer:
        """Ask for one token by text: the only proof that the engine runs."""
        return await self.ask(path, one_token_request(path, model, "Hello"), within=within)

    async def generate_path(self, model: str) -> str:
        """The endpoint that makes the engine run: chat, completions for a model without a template,
        or embeddings for one that does not generate."""
        seen = []
        for path in (CHAT, COMPLETIONS, EMBEDDINGS):
            answer = await self.one_token(path, model)
            if answer.ok:
                return path
            seen.append(f"{path} answered {answer.status}")
            if answer.busy:
                break
        raise NotServing(self.spec.name, f"no token from {model}: {', '.join(seen)}")

    async def _exchange(
        self, path: str, document: dict[str, Any] | None, within: float | None
    ) -> tuple[int, bytes]:
        method = "GET" if document is None else "POST"
        body = None if document is None else orjson.dumps(document)
        try:
            async with (
                Patience(self._timeout if within is None else within),
                self._session.request(
                    method, self._url + path, data=body, allow_redirects=False
                ) as response,
            ):
                data = bytearray()
                async for piece in response.content.iter_any():
                    data += piece
                    if len(data) > MAX_ANSWER:
                        raise NotServing(self.spec.name, f"{path}: over {MAX_ANSWER} bytes")
                return response.status, bytes(data)
        except TimeoutError as error:
            raise NotServing(self.spec.name, f"{path}: no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotServing(self.spec.name, f"{path}: {error}") from error


def one_token_request(path: str, model: str, text: str) -> dict[str, Any]:
    """The body of the smallest request that makes the engine prefill `text` and decode once.

    An embedding is made without decoding.
    """
    if path == EMBEDDINGS:
        return {"model": model, "input": text}
    prompt: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    )
    return {"model": model, "max_tokens": 1, "temperature": 0, **prompt}


def _model(card: dict[str, Any]) -> ServedModel:
    length = card.get("max_model_len")
    parent = card.get("parent")
    return ServedModel(
        name=str(card["id"]),
        root=str(card.get("root") or card["id"]),
        max_model_len=length if type(length) is int else None,
        parent=parent if isinstance(parent, str) else None,
    )


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
