"""All canaries of one gateway: what a ticket meets, and the turn once a second that moves them."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from redis.asyncio import Redis

from gateway.canary import shared
from gateway.canary.config import CanaryConfig
from gateway.canary.progress import Progress, advance
from gateway.canary.sketch import Group, merged
from gateway.canary.trial import Seen, Trial
from gateway.canary.verdict import Looks, reference
from gateway.control.store import LOST, Store
from scheduler.model import Ticket

log = logging.getLogger("forebay.canary")

TURN = 0.5
"""Seconds between two looks at a canary."""


@dataclass(slots=True)
class _Memory:
    """What Redis would keep: the old group in the whole run, and both at this step."""

    run: Group = field(default_factory=Group)
    old: Group = field(default_factory=Group)
    new: Group = field(default_factory=Group)

    def add(self, seen: Seen) -> None:
        self.run = merged((self.run, seen.old))
        self.old = merged((self.old, seen.old))
        self.new = merged((self.new, seen.new))

    def groups(self) -> tuple[Group, Group]:
        return reference(self.old, self.run), self.new


class Canaries:
    """By model. `moved` is called with the model whose share or phase is another one."""

    def __init__(self, redis: str | None, moved: Callable[[str], None]) -> None:
        self._redis = redis
        self._moved = moved
        self._memories: dict[str, _Memory] = {}
        self.trials: dict[str, Trial] = {}

    def configure(self, specs: Mapping[str, CanaryConfig]) -> None:
        """Run exactly these; one that stays keeps what it knows."""
        before, self.trials = self.trials, {}
        for model, spec in specs.items():
            trial = before.get(model) or Trial(spec)
            trial.spec = spec
            self.trials[model] = trial

    def steer(self, ticket: Ticket) -> Ticket:
        """The ticket, kept away from the group that it is not for."""
        trial = self.trials.get(ticket.model)
        if trial is None:
            return ticket
        return replace(ticket, avoid=ticket.avoid | trial.avoided(ticket))

    async def run(self) -> None:
        """Move the canaries until cancelled."""
        store = Store(self._redis) if self._redis is not None else None
        try:
            while True:
                await self._turn(store)
                await asyncio.sleep(TURN)
        finally:
            if store is not None:
                await store.lost()

    async def _turn(self, store: Store | None) -> None:
        if not self.trials:
            return
        redis = None
        try:
            redis = await store.redis() if store is not None else None
            for model, trial in list(self.trials.items()):
                if redis is None:
                    self._move_alone(model, trial)
                else:
                    await self._move(redis, model, trial)
        except LOST as error:
            log.debug("canaries stay where they are: %s", error)
            assert store is not None, "without Redis nothing of it is lost"
            await store.lost()

    async def _move(self, redis: Redis, model: str, trial: Trial) -> None:
        """Add what was seen here to what all saw, and take the step that follows from it."""
        known = await self._known(redis, model, trial)
        if known is not None and known.run == trial.spec.run:
            seen = trial.take_seen()
            if known == trial.progress and (fields := seen.fields()):
                await shared.add(redis, model, known, fields)
            groups = await shared.groups(redis, model, known)
        else:
            trial.take_seen()
            groups = Group(), Group()
        after = advance(known, trial.spec, groups, time.time())
        if after != known:
            after = await shared.swap(redis, model, known, after)
        self._set(model, trial, after)

    async def _known(self, redis: Redis, model: str, trial: Trial) -> Progress | None:
        """How far it is. A Redis that has lost that gets it back: also one in which a gateway that
        has just started, and knew nothing, has begun the same run anew."""
        known, kept = await shared.read(redis, model), trial.progress
        if kept is None or kept.run != trial.spec.run:
            return known
        if known is not None and known.run == kept.run and known.started <= kept.started:
            return known
        log.warning("canary %s: redis had lost how far it is; it goes on from there", model)
        # What was seen at this step is lost, too: it is looked at from the beginning.
        trial.progress = replace(kept, looks=Looks())
        return await shared.swap(redis, model, known, trial.progress)

    def _move_alone(self, model: str, trial: Trial) -> None:
        """With no Redis configured this gateway's memory is the only one."""
        memory = self._memories.setdefault(model, _Memory())
        memory.add(trial.take_seen())
        before = trial.progress
        after = advance(before, trial.spec, memory.groups(), time.time())
        if before is None or (after.run, after.step) != (before.run, before.step):
            begun_anew = before is None or after.run != before.run
            self._memories[model] = _Memory() if begun_anew else _Memory(run=memory.run)
        self._set(model, trial, after)

    def _set(self, model: str, trial: Trial, progress: Progress) -> None:
        before, trial.progress = trial.progress, progress
        share = progress.share(trial.spec)
        if before is None or (before.phase, before.share(trial.spec)) != (progress.phase, share):
            log.info(
                "canary %s: %s, %.0f%% to new: %s",
                *(model, progress.phase.value, share * 100, progress.reason),
            )
            self._moved(model)
