"""Waiting for what sets no event: a counter in a server, a process that ends."""

import asyncio
from collections.abc import Callable


async def reaches(condition: Callable[[], bool], within: float = 10.0) -> None:
    """Return as soon as it holds; TimeoutError when it does not within so many seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
