"""Gateways that share one Redis: what each has in use, and what it wants."""

import asyncio
from collections.abc import Callable, Iterable

from gateway.replicas.config import ReplicasConfig
from gateway.replicas.sharing import Sharing, Use
from gateway.tasks import Tasks


class Sharer:
    """One gateway with one backend. `wants` is how much it would use if it might."""

    def __init__(
        self, redis: str | None, capacity: int, *, ttl: float = 3.0, expected: int = 1
    ) -> None:
        self.wants = 0
        self.used = 0
        self.changes = 0
        settings = ReplicasConfig(ttl=ttl, expected=expected)
        self.sharing = Sharing(redis, settings, self._uses, self._changed)
        self.sharing.configure({"backend:b": capacity}, {})
        self.tasks = Tasks()
        self.task = self.tasks.spawn("sharing", self.sharing.run())

    @property
    def may_use(self) -> int:
        return self.sharing.leases["backend:b"].may_use

    def take(self) -> bool:
        """Begin one more request, if it wants to and may."""
        if self.used < min(self.wants, self.may_use):
            self.used += 1
            return True
        return False

    def _uses(self) -> Iterable[Use]:
        yield "backend:b", self.used, max(self.wants, self.used)

    def _changed(self, _: frozenset[str]) -> None:
        self.changes += 1

    async def stop(self) -> None:
        await self.tasks.stop()
        assert self.tasks.failed == 0


async def until(condition: Callable[[], bool], within: float = 5.0) -> float:
    """Wait until the condition holds; returns how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return loop.time() - began
