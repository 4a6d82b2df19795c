"""A lane: a bounded queue in front of worker processes that nobody else's work can block.

Owns the life of its workers: a worker that dies or hangs is replaced and its job tried once
more; one that grew too large, or whose models changed, is replaced by a fresh one that is ready
before the old one goes. What the jobs mean is the pool's business.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tokenizer_pool.errors import PoolBusy, WorkerFailed
from tokenizer_pool.process import WORKER_GONE, Catalog, WorkerProcess
from tokenizer_pool.types import CacheReport, LaneReport, PoolSettings

Spawn = Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Reply = tuple[dict[str, Any], list[bytes]]

_ATTEMPTS: Final = 2
_SMOOTHING: Final = 0.1
_MIN_RETRY_AFTER: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Job:
    parts: Sequence[bytes]
    size: int
    reply: "asyncio.Future[Reply]"


class _Slot:
    """The place of one worker. The lock is held while it works, so that it is not taken away."""

    def __init__(self) -> None:
        self.worker: WorkerProcess | None = None
        self.lock = asyncio.Lock()
        self.renewing = False
        self.cache = CacheReport()

    def seat(self, worker: WorkerProcess | None) -> WorkerProcess | None:
        """Put a worker here, or none; returns the one that was here."""
        before, self.worker = self.worker, worker
        self.cache = CacheReport()
        return before


class Lane:
    """`wanted` workers behind one queue."""

    def __init__(self, name: str, wanted: int, settings: PoolSettings, spawn: Spawn) -> None:
        self._name = name
        self._settings = settings
        self._spawn = spawn
        self._slots = [_Slot() for _ in range(wanted)]
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._queued_bytes = 0
        self._catalog: Catalog = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seconds = 0.01
        self._done = 0
        self._restarts = 0
        self._cache = CacheReport()

    def start(self) -> None:
        """Take jobs from now on; the processes start with their models."""
        for number, slot in enumerate(self._slots):
            name = f"tokenizer-{self._name}-{number}"
            self._tasks.add(self._spawn(name, self._work(slot)))

    async def serve(self, catalog: Catalog) -> None:
        """Serve these models from now on; returns when every worker has them loaded.

        Raises WorkerFailed when a worker with these models cannot be started; the workers of
        before go on then.
        """
        before, self._catalog = self._catalog, catalog
        renewals = (self._renew(slot) for slot in self._slots)
        for outcome in await asyncio.gather(*renewals, return_exceptions=True):
            if isinstance(outcome, WORKER_GONE):
                self._catalog = before
                message = f"a {self._name} worker did not start: {outcome!r}"
                raise WorkerFailed(message) from outcome
            if outcome is not None:
                raise outcome

    @property
    def started(self) -> bool:
        """True from start to stop."""
        return bool(self._tasks)

    async def submit(self, parts: Sequence[bytes]) -> Reply:
        """Queue a job and wait for its reply; raises PoolBusy or WorkerFailed.

        A caller that goes away takes its job out of the queue, or its reply is dropped.
        """
        size = sum(map(len, parts))
        waiting = self._queue.qsize()
        if (
            waiting >= self._settings.queue_limit
            or self._queued_bytes + size > self._settings.queue_bytes
        ):
            retry_after = max(_MIN_RETRY_AFTER, waiting * self._seconds / len(self._slots))
            raise PoolBusy(self._name, retry_after)
        job = _Job(parts, size, asyncio.get_running_loop().create_future())
        self._queued_bytes += size
        self._queue.put_nowait(job)
        return await job.reply

    async def stop(self) -> None:
        """End the workers; what waits fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        while not self._queue.empty():
            job = self._queue.get_nowait()
            if not job.reply.done():
                job.reply.set_exception(WorkerFailed("the tokenizer pool is stopping"))
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        await asyncio.gather(*(worker.close() for worker in workers))

    def report(self) -> LaneReport:
        """Counts for people and metrics."""
        return LaneReport(
            name=self._name,
            workers=sum(slot.worker is not None for slot in self._slots),
            wanted=len(self._slots),
            queued=self._queue.qsize(),
            queued_bytes=self._queued_bytes,
            done=self._done,
            restarts=self._restarts,
            cache=self._cache,
        )

    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the running workers."""
        return tuple(slot.worker.pid for slot in self._slots if slot.worker is not None)

    async def _work(self, slot: _Slot) -> None:
        while True:
            # In a call of its own: nothing large is kept while the next job is waited for.
            await self._do(await self._queue.get(), slot)

    async def _do(self, job: _Job, slot: _Slot) -> None:
        self._queued_bytes -= job.size
        if job.reply.done():
            return
        try:
            async with slot.lock:
                await self._attempt(slot, job)
        finally:
            if not job.reply.done():
                job.reply.set_exception(WorkerFailed("the tokenizer pool is stopping"))

    async def _attempt(self, slot: _Slot, job: _Job) -> None:
        clock = asyncio.get_running_loop().time
        for _ in range(_ATTEMPTS):
            started = clock()
            try:
                if slot.worker is None:
                    slot.seat(await self._fresh())
                    assert slot.worker is not None
                head, *payload = await slot.worker.call(job.parts, limit=self._settings.job_timeout)
            except WORKER_GONE:
                self._restarts += 1
                await self._discard(slot)
                continue
            self._seconds += _SMOOTHING * (clock() - started - self._seconds)
            self._done += 1
            meaning = orjson.loads(head)
            self._account(slot, meaning)
            if not job.reply.done():
                job.reply.set_result((meaning, payload))
            return
        if not job.reply.done():
            job.reply.set_exception(
                WorkerFailed(f"the request ended {_ATTEMPTS} {self._name} tokenizer workers")
            )

    async def _discard(self, slot: _Slot) -> None:
        worker = slot.seat(None)
        if worker is not None:
            await worker.kill()

    async def _fresh(self) -> WorkerProcess:
        cache_bytes = self._settings.segment_cache_bytes
        return await WorkerProcess.start(self._catalog, cache_bytes=cache_bytes)

    def _account(self, slot: _Slot, meaning: dict[str, Any]) -> None:
        """Take what the worker tells of itself out of its reply."""
        cache = CacheReport(**meaning.pop("cache"))
        self._cache += cache - slot.cache
        slot.cache = cache
        assert slot.worker is not None
        grown = meaning.pop("peak_memory") - slot.worker.loaded_memory
        if grown > self._settings.worker_memory and not slot.renewing:
            slot.renewing = True
            task = self._spawn(f"tokenizer-{self._name}-renew", self._recycle(slot))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _recycle(self, slot: _Slot) -> None:
        try:
            await self._renew(slot)
        except WORKER_GONE:
            # No memory for a second one just now; the next reply asks again.
            slot.renewing = False

    async def _renew(self, slot: _Slot) -> None:
        fresh = await self._fresh()
        try:
            await slot.lock.acquire()
        except BaseException:
            await fresh.kill()
            raise
        old = slot.seat(fresh)
        slot.renewing = False
        slot.lock.release()
        if old is not None:
            self._restarts += 1
            await old.close()
