"""The only place that starts tasks: each is named, referenced, and its failure is logged.

A task that fails is a bug in Forebay. It must not vanish, and it must not stop its neighbours.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger("forebay.tasks")

T = TypeVar("T")


class Tasks:
    """The running tasks of one process."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self.failed = 0

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, name: str, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed += 1
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel what still runs and wait until it has ended.

        A cancellation can get lost: before Python 3.12 `asyncio.wait_for`, which libraries use,
        swallows one that meets a result just come in. So it is repeated until it is heeded.
        """
        while running := self._running - {asyncio.current_task()}:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=0.2)
