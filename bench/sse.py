"""Reading server-sent events as OpenAI-compatible servers write them."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

PREFIX = b"data: "
DONE = b"[DONE]"


async def events(stream: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The JSON documents of a body, until `[DONE]` or its end."""
    async for line in stream:
        data = line.strip().removeprefix(PREFIX)
        if data == DONE:
            return
        if line.startswith(PREFIX):
            yield orjson.loads(data)


async def deltas(stream: aiohttp.StreamReader) -> AsyncIterator[str]:
    """The pieces of a streamed chat answer's text, empty ones left out."""
    async for event in events(stream):
        for choice in event.get("choices", ()):
            if text := choice["delta"].get("content"):
                yield text
