"""What is wrong with the operators' keys, and where they are told: `forebay:rejected`.

`reasons` keep the whole of the keys from being put in force; `strays` are keys under our prefix
that change nothing, most likely misspelt: they are named, and stand in nobody's way; `broken` are
keys of Forebay's own that it cannot read, which costs versions but no settings.
"""

from collections.abc import Iterable
from typing import Any

from redis.asyncio import Redis

from gateway.config import Config
from gateway.control.keys import REJECTED, applies, stray

TOLD = 20
"""Strays that are named; of more only the count is known."""


class Refusals:
    """The present refusals of one gateway."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        self._strays: set[str] = set()
        self._written: dict[str, str] | None = None

    @property
    def strays(self) -> int:
        return len(self._strays)

    def saw(self, names: Iterable[str], config: Config) -> None:
        """Note the strays among the names of keys that exist."""
        self._strays.update(name for name in names if not applies(name, config))

    def forget_strays(self) -> None:
        self._strays.clear()

    async def recheck(self, redis: Redis, names: Iterable[str]) -> None:
        """Strays of which there was news: those that are gone are forgotten."""
        asked = sorted(self._strays.intersection(names))
        async with redis.pipeline(transaction=False) as pipe:
            for name in asked:
                pipe.exists(name)
            answers = await pipe.execute()
        self._strays.difference_update(
            name for name, exists in zip(asked, answers, strict=True) if not exists
        )

    async def tell(self, redis: Redis, config: Config) -> None:
        """Write `forebay:rejected`, if it would say something else than before."""
        told: dict[Any, Any] = {name: stray(name, config) for name in sorted(self._strays)[:TOLD]}
        told |= self.broken | self.reasons
        if told == self._written:
            return
        async with redis.pipeline(transaction=True) as pipe:
            pipe.delete(REJECTED)
            if told:
                pipe.hset(REJECTED, mapping=told)
            await pipe.execute()
        self._written = told

    def reconnected(self) -> None:
        """What was written to the last server may not be on this one."""
        self._written = None
