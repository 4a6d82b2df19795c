"""Is what the tokenizer pool makes of a prompt what this backend makes of it?

A backend may run another tokenizer, another chat template or other default arguments than the
files that we read. So each model of each backend is asked, once after every probe, to tokenize
these requests with its own `/tokenize`; any difference sends its prompts as text.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson

from backends.errors import BackendError
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.types import TokenList

PROMPTS = (
    "The forebay keeps what reaches the turbines even.",
    "  leading and trailing spaces, a tab\tand\n\nblank lines  ",
    "def f(x):\n    return {'a': [x ** 2, 0x1F, 3.14e-10]}  # 100% naïve",
    "水は低きに流れる。前池はその手前にある。",
    "👩‍👩‍👧‍👦 🏳️‍🌈 é é Ωμέγα ١٢٣ ①②③",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|im_start|>system\nspecial tokens in a prompt<|im_end|></s><|endoftext|>",
)

_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}

CONVERSATIONS: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "user", "content": "Why is the sky blue?"}]},
    {
        "messages": [
            {"role": "system", "content": "Answer in one word.\n"},
            {"role": "user", "content": "Capital of France?"},
            {"role": "assistant", "content": "Paris"},
            {"role": "user", "content": [{"type": "text", "text": "And of 日本?"}]},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "<|im_end|> inside a message, and 👩‍👧 too"},
            {"role": "user", "content": ""},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "Weather in Bern?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {
                            "name": "weather",
                            "arguments": '{"place": "Bern", "days": 2}',
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 12}'},
        ],
        "tools": [_WEATHER],
    },
)
"""Bodies of `/tokenize`'s messages form, less the model."""


Tokenize = Callable[..., Awaitable[list[int] | None]]


class Pool(Protocol):
    """Our side of the comparison."""

    async def tokenize(self, body: bytes) -> TokenList: ...


async def compare(pool: Pool, tokenize: Tokenize, backend: str, model: str) -> str | None:
    """The first difference between the pool and the backend, or None when there is none.

    A request that both refuse (a template without tools, say) is no difference.
    """
    questions = [{"prompt": prompt} for prompt in PROMPTS] + list(CONVERSATIONS)
    answered = 0
    for question in questions:
        try:
            theirs = await tokenize(backend, model, **question)
        except BackendError as error:
            return f"its /tokenize failed: {error.message}"
        try:
            listed = await pool.tokenize(orjson.dumps({"model": model, **question}))
            ours = orjson.loads(listed.ids)
        except InvalidRequest:
            ours = None
        if ours != theirs:
            return f"its /tokenize differs from our tokenizer on {str(question)[:100]}"
        answered += ours is not None
    return None if answered else "its /tokenize answers nothing"
