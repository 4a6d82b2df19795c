"""The listening side: accepts connections, starts exchanges, sweeps the slow, drains at the end."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any

from gateway.connection import Connection
from gateway.exchange import Exchange
from gateway.http_types import HttpLimits

Handler = Callable[[Exchange], Coroutine[Any, Any, None]]
Spawn = Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"]

SWEEP_INTERVAL = 0.5


class HttpServer:
    """One listening address. All its state lives on the event loop that started it."""

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        spawn: Spawn,
        mark: Callable[[Exchange], None] = lambda _exchange: None,
    ) -> None:
        """`mark` gives an exchange that no handler will see its name and its shape of errors."""
        self.limits = limits
        self.mark = mark
        self.connections: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self.draining = False
        self.closed = False
        self._handler = handler
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._active = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, shared: bool = False
    ) -> int:
        """Start accepting; returns the port (useful when 0 was asked for).

        `shared`: other processes listen there, too, and the kernel spreads connections over them.
        """
        self._listener = await self._loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=4096, reuse_port=shared or None
        )
        self._sweeper = self._loop.call_later(SWEEP_INTERVAL, self._sweep)
        return int(self._listener.sockets[0].getsockname()[1])

    def admit(self, address: str) -> bool:
        """Count one more connection of this address, unless it has too many already."""
        most = self.limits.max_connections_per_address
        if most and self._addresses[address] >= most:
            return False
        self._addresses[address] += 1
        return True

    def connections_of(self, address: str) -> int:
        """How many admitted connections the address has open."""
        return self._addresses[address]

    def gone(self, address: str) -> None:
        """An admitted connection is closed. Addresses without one are not remembered."""
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def run(self, exchange: Exchange) -> None:
        """Start the task that answers this exchange."""
        if not self._active:
            self._quiet.clear()
        self._active += 1
        exchange.task = self._spawn(exchange.request.path, self._handler(exchange))
        exchange.task.add_done_callback(partial(self._ended, exchange))

    def leave(self) -> None:
        """Serve on, but say that we are going: no connection is kept after its next answer."""
        self.draining = True

    async def drain(self, grace: float) -> None:
        """Accept nothing new, let exchanges end for `grace` seconds, then cancel the rest."""
        self.draining = self.closed = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            if connection.exchange is None:
                connection.close()
        if not await _in_time(self._quiet.wait(), grace):
            for connection in list(self.connections):
                if connection.exchange is not None and connection.exchange.task is not None:
                    connection.exchange.task.cancel()
            await _in_time(self._quiet.wait(), self.limits.linger)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()

    def _ended(self, exchange: Exchange, _task: "asyncio.Task[None]") -> None:
        exchange.task = None  # which keeps how it was cancelled, and with that all it had in hand
        self._active -= 1
        if not self._active:
            self._quiet.set()

    def _sweep(self) -> None:
        """Cut what is too slow. One timer for all connections is cheaper than one for each."""
        now, limits = monotonic(), self.limits
        for c in list(self.connections):
            if c.reading_since is not None and now - c.reading_since > limits.read_timeout:
                c.refuse_slow_request()
            elif c.refused_at is not None and now - c.refused_at > limits.linger:
                c.cut()
            elif c.idle_since is not None and now - c.idle_since > limits.idle_timeout:
                c.close()
            elif c.stalled_since is not None and now - c.stalled_since > limits.stall_timeout:
                c.cut()
        self._sweeper = self._loop.call_later(SWEEP_INTERVAL, self._sweep)


async def _in_time(awaitable: Awaitable[object], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True
