"""Token counts and ids, answered by the tokenizer pool without an engine: vLLM's `/tokenize` and
`/detokenize`, Anthropic's `count_tokens`.

What the pool cannot do exactly as vLLM does it, and what vLLM would refuse in its own words, goes
to an engine.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from gateway.api.endpoints import Endpoint, Means
from gateway.directory import Directory
from gateway.exchange import Exchange
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind

_JSON: Final = [(b"content-type", b"application/json")]
_TYPE: Final = b"application/json"

Shape = Callable[[Exchange, Endpoint], Awaitable[None]]


class Tokenization:
    """`shape` lets an engine answer. Other errors of the pool go up to the routes."""

    def __init__(self, pool: TokenizerPool, directory: Directory, shape: Shape) -> None:
        self._pool = pool
        self._directory = directory
        self._shape = shape

    async def tokenize(self, exchange: Exchange, endpoint: Endpoint, _name: str) -> None:
        try:
            self._check_type(exchange)
            tokens = await self._pool.tokenize(exchange.request.body)
        except InvalidRequest as error:
            await self._ask_engine(exchange, endpoint, error)
            return
        length = self._directory.context_length(tokens.model)
        strings = b"null" if tokens.strings is None else tokens.strings
        body = b'{"count":%d,"max_model_len":%b,"tokens":%b,"token_strs":%b}' % (
            tokens.count,
            b"null" if length is None else b"%d" % length,
            tokens.ids,
            strings,
        )
        exchange.respond(200, body, _JSON)

    async def detokenize(self, exchange: Exchange, endpoint: Endpoint, _name: str) -> None:
        try:
            self._check_type(exchange)
            body = await self._pool.detokenize(exchange.request.body)
        except InvalidRequest as error:
            await self._ask_engine(exchange, endpoint, error)
            return
        exchange.respond(200, body, _JSON)

    async def count(self, exchange: Exchange, endpoint: Endpoint, _name: str) -> None:
        try:
            self._check_type(exchange)
            prompt = await self._pool.prepare(Kind.MESSAGES, exchange.request.body)
            if not prompt.exact:
                raise InvalidRequest(prompt.ineligible or "")
        except InvalidRequest as error:
            await self._ask_engine(exchange, endpoint, error)
            return
        told = b'{"input_tokens":%d,"context_management":{"original_input_tokens":%d}}'
        exchange.respond(200, told % ((prompt.prompt_tokens,) * 2), _JSON)

    async def _ask_engine(
        self, exchange: Exchange, endpoint: Endpoint, error: InvalidRequest
    ) -> None:
        """What only an engine can judge has no code; other errors are raised again."""
        if error.code is not None:
            raise error
        exchange.named = ()
        await self._shape(exchange, replace(endpoint, means=Means.PASSED, kind=Kind.UNREAD))

    def _check_type(self, exchange: Exchange) -> None:
        if not exchange.request.headers.get(b"content-type", b"").startswith(_TYPE):
            raise InvalidRequest("the engine refuses other content types")
