"""vLLM's `/tokenize` and `/detokenize`, answered by the tokenizer pool without an engine."""

from gateway.directory import Directory
from gateway.exchange import Exchange
from tokenizer_pool.pool import TokenizerPool

_JSON = [(b"content-type", b"application/json")]


class Tokenization:
    """The two endpoints. Errors of the pool go up to the routes."""

    def __init__(self, pool: TokenizerPool, directory: Directory) -> None:
        self._pool = pool
        self._directory = directory

    async def tokenize(self, exchange: Exchange) -> None:
        tokens = await self._pool.tokenize(exchange.request.body)
        length = self._directory.context_length(tokens.model)
        strings = b"null" if tokens.strings is None else tokens.strings
        body = b'{"count":%d,"max_model_len":%b,"tokens":%b,"token_strs":%b}' % (
            tokens.count,
            b"null" if length is None else b"%d" % length,
            tokens.ids,
            strings,
        )
        exchange.respond(200, body, _JSON)

    async def detokenize(self, exchange: Exchange) -> None:
        exchange.respond(200, await self._pool.detokenize(exchange.request.body), _JSON)
