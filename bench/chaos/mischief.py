"""What is done to the engines, and when: drawn from a seed, one trouble at a time per engine.

Each kind comes about equally often, and some engine is left in peace, as in a fleet of which a part
is in trouble: with all of it down there is nothing to measure but 503s.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import aiohttp

from backends.managed.node import ManagedNode
from bench.stack import fail, signal_group

TO_ANY_PROCESS = ("kill", "freeze")
KINDS = (
    *TO_ANY_PROCESS,
    "hang_after_first",
    "hang",
    "busy",
    "refuse",
    "reset_mid_stream",
)
"""kill -9 of the whole group (a slow restart follows), SIGSTOP for a while, and what
bench.fake_vllm can be told to do wrong."""

FROZEN = 2.0
HITS = 6


class Mischief:
    """Troubles the engines until cancelled. `done` counts what was done, by kind."""

    def __init__(
        self, node: ManagedNode, http: aiohttp.ClientSession, kinds: Sequence[str], rng: Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self._node = node
        self._http = http
        self._kinds = kinds
        self._rng = rng

    async def run(self, *, every: float) -> None:
        """`every`: the mean time between two troubles, in seconds."""
        async with asyncio.TaskGroup() as group:
            for kind, name in self._schedule(sorted(self._node.engines)):
                await asyncio.sleep(every * self._rng.uniform(0.5, 1.5))
                group.create_task(self._trouble(kind, name), name=f"{kind}-{name}")

    async def _trouble(self, kind: str, name: str) -> None:
        if await self._do(kind, name):
            self.done[kind] += 1

    def _schedule(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Every kind in each round, in another order each time, on every engine but the first."""
        while True:
            for kind in self._rng.sample(self._kinds, len(self._kinds)):
                yield kind, self._rng.choice(names[1:])

    async def _do(self, kind: str, name: str) -> bool:
        managed = self._node.engines[name]
        pid = managed.pid
        if pid is None:
            return False  # it is down already, from an earlier kill
        match kind:
            case "kill":
                return signal_group(pid, signal.SIGKILL)
            case "freeze":
                return await self._freeze(pid)
        url = next(spec.url for spec in self._node.specs() if spec.name == name)
        return await fail(self._http, url, kind, HITS)

    async def _freeze(self, pid: int) -> bool:
        """The kernel goes on accepting connections for it, and nobody answers."""
        try:
            if not signal_group(pid, signal.SIGSTOP):
                return False
            await asyncio.sleep(FROZEN)
        finally:
            signal_group(pid, signal.SIGCONT)
        return True
