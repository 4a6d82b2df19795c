"""How a measurement with child processes is run from a command line, and how it ends."""

import asyncio
import signal
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bench.children import ChildEnded
from bench.overhead.stand import OverheadFailed

T = TypeVar("T")


def carry_out(name: str, work: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    """Do the work in a folder of its own; what prevents a result ends the program with a line."""
    with tempfile.TemporaryDirectory(prefix=f"forebay-{name}-") as folder:
        try:
            return asyncio.run(_until_stopped(work(Path(folder))))
        except ChildEnded as ended:
            raise SystemExit(f"{name}: {ended}; the end of its log:\n{ended.log}") from None
        except OverheadFailed as failed:
            raise SystemExit(f"{name}: {failed}") from None
        except asyncio.CancelledError:
            raise SystemExit(f"{name}: stopped") from None


async def _until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Do the work; SIGTERM ends it as Ctrl-C does, so that no gateway is left behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
