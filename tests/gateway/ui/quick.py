"""Gateways that are ready soon: ids where they are proved, without timing both channels first."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import StartGateway, cache_dir, start_engine
from tests.integration.parts import Gateway, running_gateway

__all__ = ["cache_dir", "start_engine", "start_gateway"]


@pytest.fixture
async def start_gateway(cache_dir: Path) -> AsyncIterator[StartGateway]:
    tokenizer = {"cache_dir": cache_dir, "channel": "ids"}
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Gateway:
            own = {"tokenizer": tokenizer} | settings
            return await stack.enter_async_context(running_gateway(cache_dir, **own))

        yield start
