"""How a measuring command ends: with its result, or with one line that says why there is none.

SIGTERM ends a measurement as Ctrl-C does: it is cancelled, and leaves no process behind.
"""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.children import ChildEnded

T = TypeVar("T")

INTERRUPTED = 130
"""The status of a program that Ctrl-C ended, as shells count it."""


@contextmanager
def measuring(command: str, *failures: type[Exception], stopped: str = "stopped") -> Iterator[Path]:
    """A folder for the measurement that is made in the block. A child that ended, `failures` and
    being told to stop end the program with a line on its error output, and status 1; Ctrl-C with
    130. `stopped` is that line where somebody stopped it."""
    with tempfile.TemporaryDirectory(prefix=f"forebay-{command}-") as folder:
        try:
            yield Path(folder)
        except ChildEnded as ended:
            raise SystemExit(f"{command}: {ended}; the end of its log:\n{ended.log}") from None
        except asyncio.CancelledError:
            raise SystemExit(f"{command}: {stopped}") from None
        except KeyboardInterrupt:
            print(f"{command}: {stopped}", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        except failures as failed:
            raise SystemExit(f"{command}: {failed}") from None


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Do the work. Raises CancelledError when told to end."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
