"""One engine's process group, from its start to the end of its last member.

vLLM is several processes, and one that was told to stop with requests pending has been seen to stay
for an hour. So each engine leads a group of its own, and what is left of the group after a grace is
killed: it would hold the GPU's memory. Two servers may share a port without a word (SO_REUSEPORT),
so a port that something answers on is refused before the start.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

Tell = Callable[[str], None]

LONGEST_LINE = 16_384
_ANSWERS_WITHIN = 1.0
_LOOKS, _LOOK_EVERY = 30, 0.01


class PortTaken(Exception):
    """Something answers where the engine was to listen."""


async def check_port(host: str, port: int) -> None:
    """Raises PortTaken."""
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return
    writer.close()
    raise PortTaken(f"something answers on {host}:{port} already: end it, or change the plan")


class EngineProcess:
    """A started engine. `tell` gets each line that it writes."""

    def __init__(self, process: Process, tell: Tell) -> None:
        self._process = process
        self._tell = tell

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], tell: Tell, *, grace: float
    ) -> "EngineProcess":
        """Start it in a session, and so a group, of its own. Raises OSError.

        When we die before it, it has `grace` seconds to end.
        """
        leash = (sys.executable, "-m", "backends.managed.leash", str(grace))
        process = await asyncio.create_subprocess_exec(
            *leash,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )
        return cls(process, tell)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> int:
        """Pass its lines on until it ends; returns its status (negative: the signal's number).

        Its first process's end counts: one that it left behind may hold the output open.
        """
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(), name=f"output-{self.pid}")
            status = await self._process.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWERS_WITHIN):
                    await asyncio.shield(reading)
            reading.cancel()
        return status

    async def end(self, grace: float) -> None:
        """Ask it to end, and kill what is left of its group after `grace` seconds."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._until_all_are_gone()

    async def _until_all_are_gone(self) -> None:
        """The killed give back their port and memory a moment later. Where nobody reaps orphans
        they stay as names only: it is not waited for long."""
        for _ in range(_LOOKS):
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(_LOOK_EVERY)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while data := await self._process.stdout.read(65_536):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._tell(line.decode(errors="replace").rstrip("\r"))
        if rest:
            self._tell(rest.decode(errors="replace"))
