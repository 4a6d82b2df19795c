"""SIGTERM ends a measurement as Ctrl-C does: it is cancelled, and leaves no process behind."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Do the work. Raises CancelledError when told to end."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
