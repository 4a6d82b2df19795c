"""What all tests share: they run on uvloop, as Forebay does, and no property has a time limit of
its own (a busy machine would break it; `timeout` in pyproject.toml is the limit)."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import settings

settings.register_profile("forebay", deadline=None)
settings.load_profile("forebay")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
