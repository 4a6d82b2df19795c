"""From a request to what goes upstream: which model, how many tokens, to which backend if only one.

Counting is the tokenizer pool's; here is what differs by endpoint. What only vLLM can judge goes
to it, so that it is refused in vLLM's words, or understood where it understands more than we do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gateway.api import held, multipart
from gateway.api.endpoints import Endpoint, Means
from gateway.api.media import MediaCosts
from gateway.directory import Directory
from gateway.errors import ClientError
from gateway.http_types import Request
from gateway.tenancy.stand_in import STAND_IN
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind, TokenizedPrompt, Wanted

JSON: Final = "application/json"
_JSON: Final = JSON.encode()
_SOUND: Final = (("audio", 1),)


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Bounds of requests with pictures, sounds or films: bytes of the body, number of media."""

    max_body: int
    max_parts: int


@dataclass(slots=True)
class Prepared:
    """A request, ready to be admitted. Nobody changes it; frozen, it would cost more to make.

    `only` is the backend that holds what the request goes on from. Of the prompt's tokens `guessed`
    are what its media are taken to cost.
    """

    prompt: TokenizedPrompt
    content_type: str = JSON
    only: str | None = None
    guessed: int = 0


class Preparing:
    """`prepare` raises InvalidRequest, ClientError, and what the pool raises."""

    def __init__(
        self,
        pool: TokenizerPool,
        directory: Directory,
        aliases: Mapping[str, str],
        *,
        costs: MediaCosts,
        limits: MediaLimits,
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._aliases = aliases
        self._costs = costs
        self._limits = limits

    async def prepare(
        self, request: Request, endpoint: Endpoint, name: str, wanted: Wanted
    ) -> Prepared:
        """Read a request for this endpoint; `name` is what its path names."""
        if endpoint.means is Means.HELD:
            return self._held(name)
        content_type = _content_type(request)
        if endpoint.multipart and (boundary := multipart.boundary_of(content_type)):
            return self._form(request.body, content_type, boundary)
        prompt = await self._read(request.body, endpoint.kind, wanted)
        guessed = 0
        if prompt.media:
            guessed = self._media(prompt, len(request.body))
            prompt = replace(prompt, prompt_tokens=prompt.prompt_tokens + guessed)
        only = None if prompt.previous is None else self._holder(prompt.previous)
        return Prepared(prompt, content_type, only, guessed)

    async def _read(self, body: bytes, kind: Kind, wanted: Wanted) -> TokenizedPrompt:
        try:
            return await self._pool.prepare(kind, body, wanted=wanted)
        except InvalidRequest as error:
            if error.code is not None:
                raise
        return await self._pool.prepare(Kind.UNREAD, body)

    def _media(self, prompt: TokenizedPrompt, size: int) -> int:
        """What the request's media cost by the present guess, if they are not too much."""
        parts = sum(number for _, number in prompt.media)
        if size > self._limits.max_body:
            message = f"a request with media may have {self._limits.max_body} bytes; send links"
            raise ClientError(413, message, code="media_too_large")
        if parts > self._limits.max_parts:
            message = f"a request may have {self._limits.max_parts} media, not {parts}"
            raise ClientError(413, message, code="too_many_media")
        return self._costs.guess(prompt.model, prompt.media)

    def _form(self, body: bytes, content_type: str, boundary: bytes) -> Prepared:
        body = bytes(body)  # a large one may have come as a view
        parts = multipart.parts_of(body, boundary)
        asked = multipart.model_in(body, parts)
        model = self._model(asked)
        renamed = model if asked is not None and model != asked else None
        body = multipart.as_sent(body, parts, renamed)
        guess = self._costs.guess(model, _SOUND)
        return Prepared(_unread(model, guess, body), content_type)

    def _model(self, asked: str | None) -> str:
        served = [model.name for model in self._directory.models()]
        if asked is None:
            if len(served) == 1:
                return served[0]
            raise InvalidRequest("model is required", param="model", code="model_required")
        name = self._aliases.get(asked, asked)
        if name not in served:
            message = f"The model `{asked}` does not exist."
            raise InvalidRequest(message, param="model", code="model_not_found")
        return name

    def _held(self, response_id: str) -> Prepared:
        """Without a body: any model of the backend stands for it in the queue."""
        only = self._holder(response_id)
        ready = self._directory.rows.values() if only is None else [self._directory.rows[only]]
        model = next((name for row in ready if row.ready for name in row.standings), None)
        if model is None:
            message = "no engine is ready; retry after the time given"
            raise ClientError(503, message, code="no_backend", retry_after=1.0)
        return Prepared(replace(_unread(model, 1, b""), prefix=STAND_IN), only=only)

    def _holder(self, response_id: str) -> str | None:
        """The backend that holds the response; None when its id does not tell: any will say."""
        backend = held.holder(response_id, self._directory.rows)
        if backend is not None and not self._directory.rows[backend].ready:
            message = "the engine that holds this response is not ready; retry after the time given"
            raise ClientError(503, message, code="response_unavailable", retry_after=1.0)
        return backend


def _content_type(request: Request) -> str:
    given = request.headers.get(b"content-type", b"")
    return JSON if given == _JSON else given.decode("latin-1")


def _unread(model: str, tokens: int, body: bytes) -> TokenizedPrompt:
    return TokenizedPrompt(
        model=model,
        prompt_tokens=tokens,
        max_tokens=None,
        stream=False,
        exact=False,
        ineligible="not read",
        text=body,
    )
