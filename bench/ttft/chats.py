"""The chats that are sent: streamed, with tools, of a known number of tokens.

Not here: sending them (bench/ttft/measure.py).
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from bench.preprocess import conversation, request

TOOLS: Final = 8
MAX_TOKENS: Final = 8
"""Of each answer: few, since what follows the first token is not measured."""

_CORPUS: Final = Path(__file__).parents[1] / "data" / "corpus" / "python-reference.txt"

Document = dict[str, Any]
Count = Callable[[Document], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Size:
    """A chat of about `tokens` prompt tokens, in `turns` user messages."""

    name: str
    tokens: int
    turns: int


SIZES: Final = (Size("1.7k", 1_700, 1), Size("8k", 8_000, 20), Size("26k", 26_000, 100))


def chat(size: Size, model: str, characters: int) -> Document:
    """A request of about so many characters of prose; the same one each time it is asked for."""
    source = _CORPUS.read_text()

    def prose(rng: random.Random, length: int) -> str:
        start = rng.randrange(len(source) - length)
        return source[start : start + length]

    messages = conversation(prose, random.Random(size.name), characters, size.turns)
    document: Document = orjson.loads(request(messages, TOOLS))
    return document | {"model": model, "max_tokens": MAX_TOKENS, "temperature": 0}


async def sized(size: Size, model: str, count: Count) -> Document:
    """The chat of about the size's tokens, as `count` tells them: one trial, then in proportion."""
    least, trial = 2 * size.turns, 3 * size.tokens
    empty = await count(chat(size, model, least))
    full = await count(chat(size, model, trial))
    per_token = (trial - least) / (full - empty)
    return chat(size, model, max(least, least + round((size.tokens - empty) * per_token)))


def as_ids(document: Document, ids: list[int]) -> Document:
    """The same request with its prompt as token ids, as vLLM 0.32 takes them beside no messages."""
    return document | {"messages": [], "kv_transfer_params": {"prompt_token_ids": ids}}
