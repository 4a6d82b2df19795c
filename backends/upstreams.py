"""The clients of this process, by backend, and the connections that they keep ready.

All that a relay process has of the backends; in the process that owns their lives the Fleet has
one, too. Lives here: which clients there are, and renewing their spare connections. Not here: one
client's connections (`client`), and whether a backend takes traffic (`lifecycle`, which tells).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from backends.client import Client, ClientLimits
from backends.errors import BackendError, ConnectError, ConnectFailed
from backends.types import BackendSpec, Timeouts

Spawn = Callable[[str, Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Upstreams:
    """Clients by name. Backends may come and go at any time.

    `on_answer(name, status)` is told of each answer that begins, `on_failure(name, error)` of a
    backend that spare connections could not be made to.
    """

    def __init__(
        self,
        limits: ClientLimits,
        spawn: Spawn,
        *,
        on_answer: Callable[[str, int], None],
        on_failure: Callable[[str, BackendError], None],
    ) -> None:
        self._limits = limits
        self._spawn = spawn
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._clients: dict[str, Client] = {}
        self._retired: set[Client] = set()
        self._renewing: dict[str, asyncio.Task[None]] = {}

    def names(self) -> tuple[str, ...]:
        """The backends, in the order in which they came."""
        return tuple(self._clients)

    def client(self, name: str) -> Client:
        """Raises ConnectFailed for a backend that is gone: a request for it may go elsewhere."""
        client = self._clients.get(name)
        if client is None:
            raise ConnectFailed(name, "the backend was removed")
        return client

    def add(self, spec: BackendSpec) -> Client:
        """Raises ValueError for a bad URL or a name that is taken."""
        if spec.name in self._clients:
            raise ValueError(f"two backends have the same name: {spec.name}")
        client = Client(spec, self._limits)
        client.on_answer = lambda status: self._on_answer(spec.name, status)
        self._clients[spec.name] = client
        return client

    def keep_ready(self, name: str, ready: bool) -> None:
        """Whether the backend takes traffic now: only then are spare connections kept."""
        if ready and name in self._clients and name not in self._renewing:
            renewing = self._spawn(f"connections-{name}", self._renew(self._clients[name]))
            self._renewing[name] = renewing
        elif not ready and name in self._renewing:
            self._renewing.pop(name).cancel()

    async def remove(self, name: str, within: float) -> bool:
        """Give nothing new to a backend from now on, and close its client when its exchanges have
        ended or `within` seconds are over. True when all had ended."""
        client = self._pop(name)
        return await self._retire(client, within) if client is not None else True

    def apply(self, specs: Iterable[BackendSpec], within: float) -> None:
        """Have exactly these: the others, and those at another address now, are removed."""
        wanted = {spec.name: spec for spec in specs}
        for name, client in list(self._clients.items()):
            if name not in wanted or _address(wanted[name]) != _address(client.spec):
                self._pop(name)
                self._spawn(f"retire-{name}", self._retire(client, within))
        for name, spec in wanted.items():
            if name not in self._clients:
                self.add(spec)

    async def stop(self) -> None:
        """Close every connection; streams still open break."""
        for name in list(self._renewing):
            self.keep_ready(name, ready=False)
        clients = [*self._clients.values(), *self._retired]
        await asyncio.gather(*(client.close() for client in clients))

    def _pop(self, name: str) -> Client | None:
        """Take a client out of use; its name is free for another one at once."""
        self.keep_ready(name, ready=False)
        client = self._clients.pop(name, None)
        if client is not None:
            self._retired.add(client)
        return client

    async def _retire(self, client: Client, within: float) -> bool:
        try:
            return await client.until_unused(within)
        finally:
            await client.close()
            self._retired.discard(client)

    async def _renew(self, client: Client) -> None:
        """Keep spare connections young until cancelled; notices a dead server, too."""
        while True:
            await asyncio.sleep(client.limits.idle / 2)
            try:
                await client.renew(Timeouts())
            except ConnectError as error:
                self._on_failure(client.spec.name, error)


def _address(spec: BackendSpec) -> tuple[str, str | None]:
    return spec.url, spec.api_key
