"""A Control that follows a real Redis, and what it told."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.config import Config
from gateway.control import Control
from gateway.control.snapshot import Snapshot
from gateway.tasks import Tasks

BACKENDS = {
    "short-0": {"url": "http://h:1", "classes": ["short"]},
    "short-1": {"url": "http://h:2", "classes": ["short"]},
    "long-0": {"url": "http://h:3", "classes": ["long"]},
}


def config(redis: str | None = None, **changes: Any) -> Config:
    return Config.model_validate({"backends": BACKENDS, "redis": redis} | changes)


class Following:
    """Follows for the block. `told` holds what `accepted` and `rejected` got, in order."""

    def __init__(self, redis: str, snapshot: Path | None = None, **changes: Any) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        file = Snapshot(snapshot, redis) if snapshot else None
        self.control = Control(
            config(redis, **changes), self.told.put_nowait, self.told.put_nowait, snapshot=file
        )
        self.tasks = Tasks()

    async def __aenter__(self) -> "Following":
        self.tasks.spawn("control", self.control.follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.stop()
        assert self.tasks.failed == 0

    async def next(self) -> Any:
        return await asyncio.wait_for(self.told.get(), 10)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what other processes bring about."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    async def up(self) -> None:
        await self.until(lambda: self.control.up is True)
