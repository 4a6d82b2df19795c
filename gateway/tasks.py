"""The only place that starts tasks: each is named, referenced, and its failure is logged.

A task that fails is a bug in Forebay. It must not vanish, and it must not stop its neighbours. What
must go on as long as the process does is begun again (`keep`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

log = logging.getLogger("forebay.tasks")

T = TypeVar("T")

PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between the failure of what is kept and its next beginning: they double."""


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

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Spawn the work, and again whenever it has failed, until it is cancelled or done."""
        self.spawn(f"{name}, kept", self._keep(name, work))

    async def _keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause = PAUSE
        while True:
            began = monotonic()
            task = self.spawn(name, work())
            await asyncio.wait((task,))
            if task.cancelled() or task.exception() is None:
                return
            if monotonic() - began > LONGEST_PAUSE:
                pause = PAUSE
            log.warning("task %s begins again in %.1f s", name, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

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
