"""The real scheduler over model engines in virtual time: no network, no sleep, no chance.

Lives here: the event loop and what became of each request. Which workload, which settings
and what to print is `bench.simulate`'s.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from math import inf

from bench.coarse import CoarseEngine
from bench.engine import CannotServe, Engine, EngineSpec
from bench.workload import Job
from scheduler.core import Scheduler
from scheduler.events import (
    Arrived,
    BackendChanged,
    Command,
    Dispatch,
    Event,
    Failed,
    Finished,
    FirstToken,
    LoadSeen,
    Progress,
    Reject,
    Woke,
)
from scheduler.model import Backend, BackendState, Settings, Ticket

MODEL = "model"
Next = Callable[["Outcome"], Job | None]
_SCRAPE = 1.0


@dataclass(slots=True)
class Outcome:
    """What became of one job. Times are seconds from the start; None: it did not come to that."""

    job: Job
    service_class: str = ""
    backend: str = ""
    dispatched: float | None = None
    first_token: float | None = None
    ended: float | None = None
    rejected: str = ""

    @property
    def ttft(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.job.at


class Simulation:
    """One scheduler, some engines, one workload. Call `run` once.

    `model` is how the engines are simulated: the coarse one is for thousands of plain engines.
    """

    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, EngineSpec],
        backends: Sequence[Backend] = (),
        *,
        check: bool = False,
        model: type[Engine] | type[CoarseEngine] = Engine,
    ) -> None:
        self.scheduler = Scheduler(settings)
        self.engines = {name: model(spec) for name, spec in engines.items()}
        self.outcomes: list[Outcome] = []
        self.events = 0
        self._open = 0
        self._check = check
        self._next: Next = _nothing_more
        self._digest = blake2b(digest_size=8)
        self._queue: list[tuple[float, int, str]] = []
        self._coming: Iterator[tuple[float, int, str]] = iter(())
        self._due: dict[str, float] = {}
        for backend in backends or [ready(name, spec) for name, spec in engines.items()]:
            self._tell(BackendChanged(backend), 0.0)

    @property
    def digest(self) -> str:
        """Of all decisions with their times: equal digests mean equal behaviour."""
        return self._digest.hexdigest()

    def run(
        self,
        jobs: Sequence[Job],
        *,
        scrape: bool = False,
        then: Next | None = None,
        until: float = inf,
    ) -> list[Outcome]:
        """Play all jobs to their end, or `until` a time; their outcomes in the order of `jobs`.

        `then` says what a client sends when its job has ended, for clients that wait for answers.
        """
        self._next = then or _nothing_more
        self.outcomes = [Outcome(job) for job in jobs]
        self._open = len(jobs)
        self._coming = iter(sorted((job.at, 2, str(n)) for n, job in enumerate(jobs)))
        self._expect()
        if scrape:
            heappush(self._queue, (0.0, 1, "scrape"))
        told = -1
        while self._queue and self._queue[0][0] <= until:
            now, kind, name = heappop(self._queue)
            if kind == 0:
                self._step(name, now)
            elif kind == 2:
                self._expect()
                self._arrive(int(name), now)
            elif name == "scrape":
                self._scrape(now)
            elif self._due.get(name) == now:
                self._tell(Woke(), now)
            # Most steps of an engine tell the scheduler nothing.
            if self.events != told:
                told = self.events
                self._arm(now)
        return self.outcomes

    def _expect(self) -> None:
        """Queue the next job that comes; one by one, because each step pays for a long queue."""
        coming = next(self._coming, None)
        if coming is not None:
            heappush(self._queue, coming)

    def _arrive(self, number: int, now: float) -> None:
        job = self.outcomes[number].job
        ticket = Ticket(
            str(number),
            MODEL,
            job.prompt,
            max_tokens=job.output,
            tenant=job.tenant,
            session=job.session,
            prefix=job.prefix,
        )
        self._tell(Arrived(ticket), now)

    def _step(self, name: str, now: float) -> None:
        engine = self.engines[name]
        if self._due.get(name) != now:
            return
        for seq_id, at, token_index, finished in engine.advance(now):
            outcome = self.outcomes[int(seq_id)]
            if token_index == 0:
                outcome.first_token = at
                self._tell(FirstToken(seq_id), now)
            if finished:
                outcome.ended = at
                self._open -= 1
                if token_index:
                    self._tell(Progress(seq_id, token_index + 1), now)
                self._tell(Finished(seq_id), now)
                self._follow_up(outcome)
        self._schedule(name)

    def _follow_up(self, outcome: Outcome) -> None:
        job = self._next(outcome)
        if job is not None:
            heappush(self._queue, (job.at, 2, str(len(self.outcomes))))
            self.outcomes.append(Outcome(job))
            self._open += 1

    def _tell(self, event: Event, now: float) -> None:
        self.events += 1
        for command in self.scheduler.handle(event, now):
            self._obey(command, now)
        if self._check:
            self.scheduler.check()

    def _obey(self, command: Command, now: float) -> None:
        if isinstance(command, Dispatch):
            self._digest.update(f"{now:.6f} {command.ticket_id} {command.backend}\n".encode())
            outcome = self.outcomes[int(command.ticket_id)]
            outcome.dispatched = now
            outcome.backend, outcome.service_class = command.backend, command.service_class
            self._send(command.backend, command.ticket_id, outcome.job, now)
        elif isinstance(command, Reject):
            self._digest.update(f"{now:.6f} {command.ticket_id} {command.reason.value}\n".encode())
            outcome = self.outcomes[int(command.ticket_id)]
            outcome.rejected, outcome.service_class = command.reason.value, command.service_class
            self._open -= 1

    def _send(self, backend: str, ticket_id: str, job: Job, now: float) -> None:
        try:
            self.engines[backend].add(ticket_id, job.prompt, job.output, now, prefix=job.prefix)
        except CannotServe:
            self._tell(Failed(ticket_id), now)
            self.outcomes[int(ticket_id)].rejected = "cannot_serve"
            self._open -= 1
        self._schedule(backend)

    def _schedule(self, name: str) -> None:
        at = self.engines[name].next_event()
        if at is None:
            self._due.pop(name, None)
        elif self._due.get(name) != at:
            self._due[name] = at
            heappush(self._queue, (at, 0, name))

    def _scrape(self, now: float) -> None:
        for name, engine in self.engines.items():
            seen = LoadSeen(
                name, engine.running, engine.waiting, engine.kv_usage, engine.preemptions
            )
            self._tell(seen, now)
        if self._open:  # a deadline far away may be in the queue for ever
            heappush(self._queue, (now + _SCRAPE, 1, "scrape"))

    def _arm(self, now: float) -> None:
        at = self.scheduler.next_wakeup()
        if at is not None and self._due.get("") != at:
            self._due[""] = at
            heappush(self._queue, (max(at, now), 1, ""))


def _nothing_more(outcome: Outcome) -> Job | None:
    return None


def ready(name: str, spec: EngineSpec, *classes: str) -> Backend:
    """A backend for an engine of this spec, as a probe would find it."""
    return Backend(
        name,
        BackendState.READY,
        frozenset({MODEL}),
        frozenset(classes),
        limit=spec.max_num_seqs,
        prefill_rate=1.0 / spec.prefill_per_token,
        long_chunk=spec.long_prefill_token_threshold,
        kv_tokens=spec.kv_tokens,
    )
