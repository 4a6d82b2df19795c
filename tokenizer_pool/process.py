"""One worker process as the pool sees it: start, call, end. Which work it gets is the lane's."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import orjson

from tokenizer_pool import frames

# Everything that says "this process is of no use any more".
WORKER_GONE: Final = (TimeoutError, asyncio.IncompleteReadError, OSError)
_LOAD_TIMEOUT: Final = 120.0
_CLOSE_TIMEOUT: Final = 2.0
_SOCKET_BUFFER: Final = 1 << 20

# Served name to artifact directory; None for a model that goes as text.
Catalog = Mapping[str, Path | None]


class WorkerProcess:
    """A running `tokenizer_pool.worker`, with the models of a catalog loaded.

    `loaded_memory` is its peak memory in bytes after that.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.loaded_memory = 0

    @property
    def pid(self) -> int:
        """The process id, for people."""
        return self._process.pid

    @classmethod
    async def start(cls, catalog: Catalog, *, cache_bytes: int) -> Self:
        """Start a process and load every model; raises one of WORKER_GONE when it fails.

        `cache_bytes` bounds each model's cache of text segments.
        """
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tokenizer_pool.worker",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
                # A Ctrl-C at the terminal is for the gateway, which drains before it stops us.
                start_new_session=True,
            )
        try:
            worker = cls(process, *await asyncio.open_unix_connection(sock=ours))
        except BaseException:
            process.kill()
            await process.wait()
            raise
        try:
            for name, path in catalog.items():
                order = {
                    "do": "load",
                    "name": name,
                    "path": None if path is None else str(path),
                    "cache_bytes": cache_bytes,
                }
                (head,) = await worker.call([orjson.dumps(order)], limit=_LOAD_TIMEOUT)
                worker.loaded_memory = orjson.loads(head)["peak_memory"]
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def call(self, parts: Sequence[bytes], *, limit: float) -> list[bytes]:
        """One request and its reply; kill the worker after one of WORKER_GONE."""
        async with asyncio.timeout(limit):
            self._writer.writelines(frames.pieces(parts))
            await self._writer.drain()
            return await frames.read(self._reader)

    async def close(self) -> None:
        """Let it end by itself, as it does when its socket closes; kill it when it does not."""
        self._writer.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self._process.wait()
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it now, whatever it is doing."""
        self._writer.close()
        if self._process.returncode is None:
            self._process.kill()
        try:
            await self._process.wait()
        finally:
            await self._process.wait()  # a cancellation must not leave it unreaped
