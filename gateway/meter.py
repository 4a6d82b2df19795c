"""Times both channels on a backend, for a few sizes of prompts, before it takes traffic and rarely
after. What follows from the times is in `bands`.

The prompts are in the engine's prefix cache, so that hardly more than its frontend is timed.
Requests alone, and small waves of concurrent ones, go by ids and by text in turn: what one channel
costs the frontend's event loop, others wait for.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Final, Protocol

import orjson

from backends.errors import BackendError
from gateway.bands import Band, Timed, complete, decided
from tokenizer_pool.errors import TokenizerPoolError
from tokenizer_pool.types import Kind, TokenizedPrompt

log = logging.getLogger("forebay.channels")

SIZES: Final = ((512, 1024), (2048, 4096), (8192, None))
"""Prompt tokens that are sent, and up to how many the finding goes for."""

WITHIN: Final = 20.0
"""Seconds for one model and API of a backend; what is not measured by then goes by ids."""

_ALONE: Final = (1, 7)
_WAVES: Final = (4, 3)
"""How many requests at a time, and how often."""

_UNCACHED: Final = 0.25
_TURN: Final = 120
_WORDS: Final = ("water", "river", "stone", "light", "field", "house", "glass", "paper", "1867")
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "gauge",
        "description": "Reads a gauge",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
    },
}

Ask = Callable[[str, Kind, bytes], Awaitable[float]]
"""Send a body to a backend: seconds to the first token. Raises BackendError."""


class Preparing(Protocol):
    """What is needed of the tokenizer pool."""

    async def prepare(self, kind: Kind, body: bytes) -> TokenizedPrompt: ...


class Meter:
    """`pool` makes the bodies, `ask` times them."""

    def __init__(self, pool: Preparing, ask: Ask) -> None:
        self._pool = pool
        self._ask = ask

    async def bands(
        self, backend: str, model: str, kind: Kind, longest: int | None
    ) -> tuple[Band, ...]:
        """The backend's bands for one model and API; prompts have `longest` tokens at most."""
        found: list[Band] = []
        try:
            async with asyncio.timeout(WITHIN):
                for tokens, up_to in SIZES:
                    if longest is not None and tokens >= longest:
                        break
                    prompt = await self._prompt(model, kind, tokens)
                    if not prompt.ids or not await self._cached(backend, kind, prompt):
                        break
                    found.append(await self._band(backend, kind, prompt, up_to))
        except (TimeoutError, BackendError, TokenizerPoolError) as error:
            log.warning("backend %s, %s of %s not timed: %s", backend, kind.value, model, error)
        return complete(found)

    async def _prompt(self, model: str, kind: Kind, tokens: int) -> TokenizedPrompt:
        """About so many tokens: one trial, then in proportion."""
        prompt = await self._pool.prepare(kind, _body(model, kind, tokens))
        words = max(1, tokens * tokens // max(prompt.prompt_tokens, 1))
        return await self._pool.prepare(kind, _body(model, kind, words))

    async def _cached(self, backend: str, kind: Kind, prompt: TokenizedPrompt) -> bool:
        """Send it once for the prefix cache, and again to see that there is one."""
        first = await self._ask(backend, kind, prompt.ids)
        again = await self._ask(backend, kind, prompt.ids)
        return again < max(_UNCACHED, first / 2)

    async def _band(
        self, backend: str, kind: Kind, prompt: TokenizedPrompt, up_to: int | None
    ) -> Band:
        alone = await self._timed(backend, kind, prompt, _ALONE)
        return decided(up_to, alone, await self._timed(backend, kind, prompt, _WAVES))

    async def _timed(
        self, backend: str, kind: Kind, prompt: TokenizedPrompt, often: tuple[int, int]
    ) -> Timed:
        wave, rounds = often
        times: dict[bytes, list[float]] = {prompt.ids: [], prompt.text: []}
        for number in range(rounds):
            for body in times if number % 2 else reversed(times):
                asked = (self._ask(backend, kind, body) for _ in range(wave))
                times[body].extend(await asyncio.gather(*asked))
        return Timed(median(times[prompt.ids]), median(times[prompt.text]))


def _body(model: str, kind: Kind, words: int) -> bytes:
    """A streamed request for one token, of the same words each time."""
    said = random.Random(words).choices(_WORDS, k=words)
    document: dict[str, Any] = {"model": model, "stream": True, "max_tokens": 1}
    if kind is Kind.COMPLETION:
        return orjson.dumps(document | {"prompt": " ".join(said)})
    turns = [" ".join(said[at : at + _TURN]) for at in range(0, words, _TURN)]
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": turn}
        for number, turn in enumerate(turns)
    ]
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "Go on."})
    return orjson.dumps(document | {"messages": messages, "tools": [_TOOL]})
