"""Child processes of a bench command: started in groups of their own, watched, and all stopped.

Not here: what they are (bench/demo.py) and when they are ready.
"""

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""

TAIL = 15


class ChildEnded(Exception):
    """A child ended by itself. `log` is the end of what it wrote."""

    def __init__(self, name: str, status: int, log: str) -> None:
        super().__init__(f"{name} ended with status {status}")
        self.name = name
        self.log = log


class Child:
    """One running child. Its error output, or all of its output, is in `log`."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    async def first_line(self) -> bytes:
        """What an announcing child says first. Empty when it ended instead."""
        assert self.process.stdout is not None, "started without announces=True"
        return await self.process.stdout.readline()

    async def watch(self) -> None:
        """Raise ChildEnded when it ends."""
        status = await self.process.wait()
        lines = self.log.read_text(errors="replace").splitlines()
        raise ChildEnded(self.name, status, "\n".join(lines[-TAIL:]))

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL for what of its group is left after `grace` seconds."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), grace)
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Children:
    """The children of one `children()` block, in the order of their start."""

    def __init__(self, watchers: asyncio.TaskGroup, logs: Path) -> None:
        self._watchers = watchers
        self._watching: list[asyncio.Task[None]] = []
        self._logs = logs
        self._started: list[Child] = []

    async def start(
        self, name: str, *command: str | Path, announces: bool = False, may_end: bool = False
    ) -> Child:
        """`announces` keeps its standard output apart from the log, for `Child.first_line`. One
        that `may_end` is not watched: a measurement kills it."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=PIPE if announces else file,
                stderr=file,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._started.append(child)
        if not may_end:
            watching = self._watchers.create_task(child.watch(), name=f"watch {name}")
            self._watching.append(watching)
        return child

    async def stop(self, grace: float) -> None:
        """Stop all, the last started first; they have `grace` seconds together."""
        for task in self._watching:
            task.cancel()
        deadline = time.monotonic() + grace
        for child in reversed(self._started):
            await child.stop(max(0.0, deadline - time.monotonic()))


@asynccontextmanager
async def children(logs: Path, *, grace: float = GRACE) -> AsyncIterator[Children]:
    """Children that live as long as the block. One that ends earlier ends the block.

    Raises ChildEnded then (the first, if several ended), else what the block raises. However the
    block ends, no child is left.
    """
    try:
        async with asyncio.TaskGroup() as watchers:
            started = Children(watchers, logs)
            try:
                yield started
            finally:
                await started.stop(grace)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
