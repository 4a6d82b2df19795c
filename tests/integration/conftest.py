"""Engines and gateways for one test each; `parts` has what they are made of."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.parts import Engine, Gateway, running_engine, running_gateway

StartEngine = Callable[..., Awaitable[Engine]]
StartGateway = Callable[..., Awaitable[Gateway]]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all workers of a run: the first to come extracts the tokenizer."""
    return tmp_path_factory.getbasetemp().parent / "forebay-cache"


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    async with AsyncExitStack() as stack:

        async def start(*options: str, port: int = 0) -> Engine:
            return await stack.enter_async_context(running_engine(*options, port=port))

        yield start


@pytest.fixture
async def start_gateway(cache_dir: Path) -> AsyncIterator[StartGateway]:
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Gateway:
            return await stack.enter_async_context(running_gateway(cache_dir, **settings))

        yield start
