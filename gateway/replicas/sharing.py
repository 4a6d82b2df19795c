"""This gateway's word with the others, ten times a second, through Redis.

Holds the leases (slots) and accounts (quotas) by name, renews them in one round trip, and goes on
with what it has when Redis does not answer. Nothing on a request's path is here: requests use the
leases and accounts as they are.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from redis.asyncio import Redis

from gateway.control.store import LOST, Store
from gateway.replicas.config import ReplicasConfig
from gateway.replicas.leases import Lease
from gateway.replicas.shares import LEASE, QUOTA
from gateway.tenancy.account import Account, Answer

log = logging.getLogger("forebay.replicas")

TICK = 0.1
"""Seconds between two words when something goes on."""
IDLE = 0.25
"""Seconds between two words about what nobody uses: how long it may take to give that up."""
HURRY = 0.01
"""Seconds to the next word when something is short."""
WITHIN = 0.3
"""A Redis that takes longer is not there: quotas must not run dry for waiting."""
BATCH = 200
Use = tuple[str, int, int]
"""A lease's name, what is in use of it, and what would be if there were room."""


class Sharing:
    """`uses` is asked before each renewal; `changed` hears which leases have another limit."""

    def __init__(
        self,
        redis: str | None,
        settings: ReplicasConfig,
        uses: Callable[[], Iterable[Use]],
        changed: Callable[[frozenset[str]], None],
    ) -> None:
        self._redis = redis
        self._settings = settings
        self._uses = uses
        self._changed = changed
        self._hurry = asyncio.Event()
        self.leases: dict[str, Lease] = {}
        self.accounts: dict[str, Account] = {}
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.up = False

    @property
    def replicas(self) -> int:
        """The gateways that were last seen."""
        seen = [lease.replicas for lease in self.leases.values()]
        seen += [account.replicas for account in self.accounts.values()]
        return max(seen, default=self._settings.expected)

    def configure(self, slots: dict[str, int], quotas: dict[str, int]) -> None:
        """Share exactly these: capacities of slots, and limits per minute, by name."""
        changed = set(self.leases) ^ set(slots)
        self.leases = {name: self.leases.get(name) or Lease(n) for name, n in slots.items()}
        changed |= {name for name, n in slots.items() if self.leases[name].resize(n)}
        known = self.accounts
        self.accounts = {}
        for name, limit in quotas.items():
            self.accounts[name] = account = known.get(name) or Account(limit, self.replicas)
            account.resize(limit)
        if self._redis is None:
            changed |= self._alone()
        if changed:
            self._changed(frozenset(changed))
        self.hurry()

    def hurry(self) -> None:
        """Something is short, or there is news for the others: do not wait for the next turn."""
        self._hurry.set()

    async def run(self) -> None:
        """Share until cancelled; then give back what is held, if Redis is there."""
        if self._redis is None:
            return
        store = Store(self._redis)
        try:
            while True:
                await self._turn(store)
                await self._pause()
        finally:
            if self.up:
                await self._leave(store)
            await store.lost()

    async def _turn(self, store: Store) -> None:
        try:
            async with asyncio.timeout(WITHIN):
                redis = await store.redis()
                changed = await self._renew(redis)
        except (*LOST, TimeoutError) as error:
            if self.up:
                log.warning("redis is lost, shares stay as they are: %s", error)
            self.up = False
            for account in self.accounts.values():
                account.lost()
            changed = self._alone()
            await store.lost()
        else:
            if not self.up:
                log.info("shares with other gateways as %s", self.name)
            self.up = True
        if changed:
            # Others may only have what was given up once they know of it.
            self.hurry()
            self._changed(frozenset(changed))

    def _alone(self) -> set[str]:
        expected = self._settings.expected
        return {name for name, lease in self.leases.items() if lease.alone(expected)}

    async def _renew(self, redis: Redis) -> set[str]:
        """One round trip for all that is due; returns the leases whose limit is another one."""
        now = monotonic()
        for name, used, wanted in self._uses():
            if name in self.leases:
                self.leases[name].note(used, wanted, now)
        idle = now - min(IDLE, self._settings.ttl / 4)
        leases = [
            (name, lease)
            for name, lease in self.leases.items()
            if lease.used or lease.demand or lease.limit is None or lease.asked_at <= idle
        ]
        accounts = [
            (name, account)
            for name, account in self.accounts.items()
            if account.busy or account.asked_at <= idle
        ]
        ttl = int(self._settings.ttl * 1000)
        changed: set[str] = set()
        for at in range(0, len(leases), BATCH):
            changed |= await self._renew_leases(redis, leases[at : at + BATCH], ttl, now)
        for at in range(0, len(accounts), BATCH):
            await self._renew_accounts(redis, accounts[at : at + BATCH], ttl)
        return changed

    async def _renew_leases(
        self, redis: Redis, leases: list[tuple[str, Lease]], ttl: int, now: float
    ) -> set[str]:
        args: list[Any] = [self.name, ttl]
        for _, lease in leases:
            ask = lease.ask(now)
            args += [ask.capacity, ask.limit, ask.used, ask.demand]
        keys = [f"forebay.lease:{name}" for name, _ in leases]
        answers = await redis.register_script(LEASE)(keys=keys, args=args)
        return {
            name
            for (name, lease), (grant, replicas, young) in zip(leases, answers, strict=True)
            if lease.answered(grant, replicas, young=bool(young))
        }

    async def _renew_accounts(
        self, redis: Redis, accounts: list[tuple[str, Account]], ttl: int
    ) -> None:
        args: list[Any] = [self.name, ttl]
        for _, account in accounts:
            ask = account.ask(monotonic())
            args += [ask.limit, ask.spent, ask.held, ask.demand]
        keys = [f"forebay.quota:{name}" for name, _ in accounts]
        answers = await redis.register_script(QUOTA)(keys=keys, args=args)
        now = monotonic()
        for (_, account), (*counts, born, young, returns) in zip(accounts, answers, strict=True):
            grant, target, left, replicas = counts
            pairs = zip(returns[::2], returns[1::2], strict=True)
            back = tuple((milliseconds / 1000, amount) for milliseconds, amount in pairs)
            answer = Answer(grant, target, left, replicas, born, bool(young), back)
            account.answered(answer, now)

    async def _pause(self) -> None:
        await asyncio.sleep(HURRY)
        try:
            async with asyncio.timeout(TICK - HURRY):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def _leave(self, store: Store) -> None:
        """Free at once what would be free at the end of the time to live."""
        try:
            async with asyncio.timeout(WITHIN):
                redis = await store.redis()
                for account in self.accounts.values():
                    account.held = 0
                await self._renew_accounts(redis, list(self.accounts.items()), 1)
                async with redis.pipeline(transaction=False) as pipe:
                    for name in self.leases:
                        pipe.hdel(f"forebay.lease:{name}", self.name)
                    for name in self.accounts:
                        pipe.hdel(f"forebay.quota:{name}", f"h{self.name}")
                    await pipe.execute()
        except (*LOST, TimeoutError) as error:
            log.info("what this gateway held is free when its time is over: %s", error)
