"""Follows the operators' keys of one Redis and says what is in force.

Nothing here is on a request's path. Whatever happens to Redis, the last good settings stay in
force; what Redis held last is kept in a local file for the next start, and brought back to a
Redis that has come up empty.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic

from redis.asyncio import Redis

from gateway.config import Config
from gateway.control import notice, published, reader, versions
from gateway.control.keys import applies, standing
from gateway.control.overlay import Document, Rejection, digest, overlay
from gateway.control.refusals import Refusals
from gateway.control.snapshot import Snapshot
from gateway.control.store import LOST, BrokenKey, Store
from gateway.control.versions import Change, Moved, Version

log = logging.getLogger("forebay.control")

RETRY_INTERVAL = 0.5


class Control:
    """`accepted` gets each new effective configuration, `rejected` each refusal's reasons (empty
    when the keys are valid again). `config` is what holds without Redis."""

    def __init__(
        self,
        config: Config,
        accepted: Callable[[Config], None],
        rejected: Callable[[dict[str, str]], None],
        *,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._base = config
        self._accepted = accepted
        self._rejected = rejected
        self._snapshot = snapshot
        self._hashes: dict[str, Mapping[str, str] | None] = {}
        self._seen = ""
        self._state: Document = {}
        self.refusals = Refusals()
        self.effective = config
        self.version = 0
        self.up: bool | None = None if config.redis is None else False
        self._begun = False
        self.noticed_by = ""
        """How changes come: by "tracking" or by "polling"; "" before Redis ever answered."""

    @property
    def reasons(self) -> dict[str, str]:
        return self.refusals.broken | self.refusals.reasons

    def sets(self, key: str, field: str) -> bool:
        """Whether an operator's key is what decides this setting now."""
        return field in self._state.get(key, {})

    async def follow(self) -> None:
        """Follow the keys until cancelled; a lost Redis is tried again for ever. After a failure
        it may be called again."""
        if self._base.redis is None:
            return
        if not self._begun:
            self._resume()
            self._begun = True
        store = Store(self._base.redis)
        try:
            while True:
                try:
                    await self._follow_one(store)
                except LOST as error:
                    self._set_up(up=False, why=str(error))
                    await store.lost()
                await asyncio.sleep(RETRY_INTERVAL)
        finally:
            self.up = False  # however it ends: nobody follows any more
            await store.lost()

    def _resume(self) -> None:
        """Go on with what the snapshot has, if that is still valid with this configuration."""
        kept = self._snapshot.load() if self._snapshot is not None else None
        if kept is None:
            return
        try:
            effective = overlay(self._base, kept.state)
        except Rejection as error:
            log.warning("the settings of the last run are not valid any more: %s", error)
            return
        log.info("settings version %d of the last run, until redis answers", kept.number)
        self.version = kept.number
        self._put_in_force(effective, kept.state)

    async def _follow_one(self, store: Store) -> None:
        """Follow one server until it is lost, which raises."""
        redis = await store.redis()
        news, why = await notice.begin(store.url)
        try:
            if why:
                log.warning("redis does not tell of changes, they are polled: %s", why)
            self.noticed_by = news.name
            self._seen = ""
            self.refusals.reconnected()
            await published.publish(redis, self._base)
            await self._look_everywhere(redis, news)
            while True:
                self._set_up(up=True, why=news.name)
                changes = await news.changes(self._hashes)
                if changes is None:
                    await self._look_everywhere(redis, news)
                elif changes or self.refusals.broken:
                    await self._look_at(redis, changes)
        finally:
            await news.close()

    async def _look_everywhere(self, redis: Redis, news: notice.Notice) -> None:
        """Find the keys that there are, and read all that mean something."""
        await published.publish_again(redis, self._base)
        began = monotonic()
        names = await reader.scan(redis)
        news.scan_took(monotonic() - began)
        self.refusals.forget_strays()
        self.refusals.saw(names, self._base)
        ours = frozenset(name for name in names if applies(name, self._base))
        self._hashes = await reader.read(redis, ours | standing(self._base))
        await self._restore(redis)
        await self._settle(redis)

    async def _look_at(self, redis: Redis, changes: frozenset[str]) -> None:
        """Read the keys that may have changed."""
        ours = frozenset(name for name in changes if applies(name, self._base))
        self.refusals.saw(changes - ours, self._base)
        await self.refusals.recheck(redis, changes - ours)
        self._hashes |= await reader.read(redis, ours)
        await self._settle(redis)

    async def _restore(self, redis: Redis) -> None:
        """A Redis without a version has lost its memory: give it back what is in force.

        What somebody has put there since stays. An operator who wants the file's settings back
        deletes the keys, not the database.
        """
        if not self._state or not await self._has_lost_its_memory(redis):
            return
        missing = [
            Change(key, name, None, value)
            for key, fields in self._state.items()
            if self._hashes.get(key, {}) == {} and applies(key, self._base)
            for name, value in fields.items()
        ]
        note = "restored: Redis had lost its settings"
        try:
            number = await versions.commit(
                redis,
                self._hashes,
                missing,
                versions.Stamp("forebay", note, accepted={}, version=0, after=self.version),
            )
        except Moved:
            log.info("another gateway has restored the settings, or somebody has set new ones")
        else:
            log.warning("redis had lost its settings; they are restored as version %d", number)
        self._hashes |= await reader.read(redis, {*self._hashes, *self._state})

    async def _has_lost_its_memory(self, redis: Redis) -> bool:
        try:
            return await versions.current(redis) is None
        except BrokenKey:
            if any(self._hashes.values()):
                return False
            raise  # then nobody can tell, and an empty Redis must not be put in force

    async def _settle(self, redis: Redis) -> None:
        """Put what was read in force if it is good and new, and say so if it is not good."""
        word = digest(self._hashes)
        if word != self._seen:
            try:
                effective = overlay(self._base, self._hashes)
            except Rejection as error:
                self._refuse(error)
            else:
                await self._accept(redis, effective)
            self._seen = "" if self.refusals.broken else word
        await self.refusals.tell(redis, self._base)

    async def _accept(self, redis: Redis, effective: Config) -> None:
        state = {key: fields for key, fields in self._hashes.items() if fields}
        broken: dict[str, str] = {}
        try:
            self.version = await self._record(redis, state)
        except BrokenKey as error:
            broken = {error.key: error.reason}
        except Moved as moved:
            # News of that is on its way; what was read is good all the same.
            self.version = max(self.version, moved.number)
        except LOST:
            self._put_in_force(effective, state)
            raise
        self._note_broken(broken)
        known = broken and state == self._state
        self._put_in_force(effective, state)
        if self._snapshot is not None and not known:
            kept = Version(self.version, digest(state), state)
            await asyncio.to_thread(self._snapshot.save, kept)

    async def _record(self, redis: Redis, state: Document) -> int:
        """Make a version of what is about to be in force, unless another gateway has, or
        `forebay ctl`."""
        known = await versions.current(redis)
        if known is None and not state:
            return self.version
        if known is not None and known.digest == digest(state):
            return known.number
        by = await reader.who_wrote(redis)
        before = known.state if known is not None else {}
        stamp = versions.Stamp(by, accepted=before, after=self.version)
        return await versions.commit(redis, self._hashes, [], stamp)

    def _note_broken(self, broken: dict[str, str]) -> None:
        """Keys of ours that nobody can read: told once, and looked at until they are repaired."""
        if broken != self.refusals.broken:
            for key, why in broken.items():
                log.warning(
                    "settings are in force, but no versions are made of them: %s %s", key, why
                )
            if not broken:
                log.info("versions are made again")
            self.refusals.broken = broken

    def _put_in_force(self, effective: Config, state: Document) -> None:
        self._state = state
        if effective != self.effective:
            before, self.effective = self.effective, effective
            try:
                self._accepted(effective)
            except BaseException:
                self.effective = before  # it is tried again with the next look
                raise
        if self.refusals.reasons:
            self.refusals.reasons = {}
            self._rejected({})

    def _refuse(self, error: Rejection) -> None:
        if error.reasons != self.refusals.reasons:
            log.warning("settings refused, the last good ones stay in force: %s", error)
            self.refusals.reasons = error.reasons
            self._rejected(error.reasons)

    def _set_up(self, *, up: bool, why: str) -> None:
        if up and not self.up:
            log.info("redis answers; changes of its keys come by %s", why)
        elif not up and self.up is not False:
            log.warning("redis is lost, the last good settings stay in force: %s", why)
        self.up = up
