"""One relay process as its parent holds it: started, said hello to, waited for, ended."""

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from gateway.node.link import Link, Message

EXIT_TIMEOUT = 5.0
"""Seconds that a process gets to end by itself once its link is closed."""


class Relay:
    """A process and its link. `receive` gets what it says.

    The events are set when it says so, and all of them when it is gone: nobody waits for the dead.
    """

    def __init__(self, name: str, receive: Callable[["Relay", Message], None]) -> None:
        self.name = name
        self.link = Link(lambda message: receive(self, message), self._lost)
        self.listening = asyncio.Event()
        self.drained = asyncio.Event()
        self.loaded: dict[str, asyncio.Event] = {}
        self.awaited: dict[int, asyncio.Event] = {}
        self.silences = 0
        self.has_spoken = False  # until it has, it is starting, which may take its time
        self._gone = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    def ask(self, what: str, number: int, *more: Any) -> asyncio.Event:
        """Send what is answered with the number; the event is set when it is."""
        event = self.awaited[number] = asyncio.Event()
        self.link.send(what, number, *more)
        return event

    def has_answered(self, number: int) -> None:
        """Nothing for an answer that nobody waits for any more."""
        if (event := self.awaited.get(number)) is not None:
            event.set()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. Raises OSError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self.link, sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.node.process", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def until_gone(self) -> None:
        await self._gone.wait()

    async def end(self) -> int | None:
        """Close the link, which ends the process; kill it when that takes too long.

        Returns its exit status.
        """
        self.link.close()
        if self._process is None:
            return None
        try:
            async with asyncio.timeout(EXIT_TIMEOUT):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def _lost(self) -> None:
        self._gone.set()
        waited_for = (self.listening, self.drained, *self.loaded.values(), *self.awaited.values())
        for event in waited_for:
            event.set()
