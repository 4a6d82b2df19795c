"""A small world around a scheduler, with its own books of what may and must happen.

`World` offers actions (a ticket arrives, a stream ends, a backend changes ...) and checks each
command against what it knows. The hypothesis machine and the seeded walk both play it, so that
the walk can prove that the actions reach every outcome.
"""

from collections import Counter
from random import Random

from scheduler.core import Scheduler
from scheduler.events import (
    Abandoned,
    Arrived,
    BackendChanged,
    BackendRemoved,
    Cancel,
    Command,
    Decided,
    Dispatch,
    Drain,
    Event,
    Failed,
    Finished,
    FirstToken,
    Reject,
    SettingsChanged,
    WakeAt,
    Woke,
)
from scheduler.model import Backend, BackendState, BurstSpec, ClassSpec, Settings, Ticket

SETTINGS = (
    Settings(
        classes=(
            ClassSpec("short", max_prompt_tokens=500, limit=5, queue_limit=6),
            ClassSpec("long", queue_limit=4, tenant_queue_limit=2, spill=("short",)),
        ),
        queue_wait=8.0,
        burst=BurstSpec(window=0.5, clean_interval=1.5),
    ),
    Settings(classes=(ClassSpec("only", queue_limit=5),), queue_wait=3.0),
    Settings(
        classes=(
            ClassSpec("tiny", max_prompt_tokens=50, queue_limit=3),
            ClassSpec("short", max_prompt_tokens=500, limit=2, spill=("long", "tiny")),
            ClassSpec("long", limit=3),
        ),
        queue_wait=20.0,
        short_reserve=0.5,
    ),
)
NAMES = ("a", "b", "c")
MODELS = ("m", "n")
CLASS_SETS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"short"}),
    frozenset({"long"}),
    frozenset({"short", "long"}),
)


class World:
    """The scheduler under test, the backends it was told of, and every ticket's fate."""

    def __init__(self, settings: Settings = SETTINGS[0]) -> None:
        self.now = 0.0
        self.settings = settings
        self.scheduler = Scheduler(settings)
        self.backends: dict[str, Backend] = {}
        self.tickets: dict[str, Ticket] = {}
        self.waiting: dict[str, float] = {}
        self.flying: dict[str, Dispatch] = {}
        self.over: dict[str, str] = {}
        self.story: list[tuple[float, Event]] = []
        self.replies: list[list[Command]] = []
        self.seen: Counter[str] = Counter()
        self.draining = False
        self.wake: float | None = None

    # --- actions ----------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        """Give the scheduler an event and hold each of its commands against the books."""
        self.story.append((self.now, event))
        commands = self.scheduler.handle(event, self.now)
        self.replies.append(commands)
        self.scheduler.check()
        for command in commands:
            self._obey(command)
        self._check_time()
        self._check_waiting()

    def arrive(self, tokens: int, tenant: str, priority: int, **fields: object) -> None:
        name = f"t{len(self.tickets)}"
        fields.setdefault("model", "m")
        ticket = Ticket(
            name,
            prompt_tokens=tokens,
            tenant=tenant,
            priority=priority,
            **fields,  # type: ignore[arg-type]
        )
        self.tickets[name] = ticket
        deadline = ticket.deadline
        self.waiting[name] = self.now + self.settings.queue_wait if deadline is None else deadline
        self.send(Arrived(ticket))

    def end(self, name: str, how: type[Finished | Failed | Abandoned]) -> None:
        """End a stream, or anything else: the scheduler must cope with late and double ends."""
        if name in self.flying:
            del self.flying[name]
            self.over[name] = how.__name__
        elif how is Abandoned and self.waiting.pop(name, None) is not None:
            self.over[name] = "Abandoned"
        self.send(how(name))

    def first_token(self, name: str) -> None:
        self.send(FirstToken(name))

    def change_backend(self, backend: Backend) -> None:
        self.backends[backend.name] = backend
        self.send(BackendChanged(backend))

    def remove_backend(self, name: str, cancel: bool) -> None:
        self.backends.pop(name, None)
        self.send(BackendRemoved(name, cancel))

    def change_settings(self, settings: Settings) -> None:
        self.settings = settings
        self.send(SettingsChanged(settings))

    def drain(self) -> None:
        self.draining = True
        self.send(Drain())

    def pass_time(self, seconds: float) -> None:
        """Let time pass as a driver does: every wakeup that was asked for is sent on time."""
        until = self.now + seconds
        while self.wake is not None and self.wake <= until:
            self.now, self.wake = max(self.now, self.wake), None
            self.send(Woke())
        self.now = until

    def finish_everything(self) -> None:
        """Bring the world to its end: nothing may be left over, and each ticket has one fate."""
        self.drain()
        self.arrive(10, "too late", 0)
        for name in tuple(self.flying):
            self.end(name, Finished)
        self.pass_time(60.0)
        assert not self.waiting, "draining must empty the queue"
        assert self.over.keys() == self.tickets.keys(), "a ticket has no outcome"
        self.change_backend(Backend("a", BackendState.READY, frozenset({"m"}), limit=16))
        self.pass_time(60.0)
        views = self.scheduler.snapshot()
        assert all(v.queued == v.in_flight == v.queued_tokens == 0 for v in views.pools)
        assert all(v.in_flight == v.prefill_backlog == 0 for v in views.backends)
        assert all(v.limit_effective == v.limit_configured for v in views.pools)

    def replay(self) -> None:
        """A fresh scheduler must answer the same story with the same commands."""
        other = Scheduler(self.first_settings)
        for (now, event), commands in zip(self.story, self.replies, strict=True):
            assert other.handle(event, now) == commands

    @property
    def first_settings(self) -> Settings:
        return SETTINGS[0]

    # --- books ------------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        self.seen[type(command).__name__] += 1
        match command:
            case Dispatch():
                self._on_dispatch(command)
            case Reject(name, reason, retry_after):
                assert name in self.waiting, f"{name} is rejected, but was not waiting"
                assert 1.0 <= retry_after <= 120.0
                del self.waiting[name]
                self.over[name] = reason.value
            case Cancel(name):
                assert name in self.flying, f"{name} is cancelled, but not in flight"
            case WakeAt(at):
                assert at > self.now
                self.wake = at
            case Decided():
                assert command.before != command.after
                assert command.after >= 1
        if isinstance(command, Reject):
            self.seen[command.reason.value] += 1

    def _on_dispatch(self, command: Dispatch) -> None:
        name = command.ticket_id
        assert name in self.waiting, f"{name} is dispatched, but was not waiting"
        assert self.waiting[name] > self.now, f"{name} is dispatched past its deadline"
        assert not self.draining, "draining, yet something is dispatched"
        del self.waiting[name]
        ticket, backend = self.tickets[name], self.backends[command.backend]
        assert backend.state is BackendState.READY
        assert backend.weight > 0
        assert ticket.model in backend.models
        if backend.name in ticket.avoid:
            assert not self._others(ticket), "an avoided backend was taken while others remain"
        self.flying[name] = command
        here = sum(flight.backend == backend.name for flight in self.flying.values())
        assert here <= backend.limit, "a backend's limit is exceeded"
        self._check_class_limit(command)

    def _check_class_limit(self, command: Dispatch) -> None:
        tokens = self.tickets[command.ticket_id].prompt_tokens
        bounds = {s.name: s.max_prompt_tokens or 1e9 for s in self.settings.classes}
        fitting = [name for name, bound in bounds.items() if tokens <= bound]
        assert command.service_class == min(fitting, key=bounds.__getitem__)
        spec = next(s for s in self.settings.classes if s.name == command.service_class)
        mine = sum(f.service_class == spec.name for f in self.flying.values())
        assert spec.limit is None or mine <= spec.limit, "a class limit is exceeded"

    def _others(self, ticket: Ticket) -> list[str]:
        return [
            b.name
            for b in self.backends.values()
            if b.state is BackendState.READY
            and b.weight > 0
            and ticket.model in b.models
            and b.name not in ticket.avoid
        ]

    def _check_waiting(self) -> None:
        """Nobody waits for a model that nothing alive serves, nor for a world that is idle."""
        for name in self.waiting:
            model = self.tickets[name].model
            alive = [b for b in self.backends.values() if model in b.models or not b.models]
            states = {b.state for b in alive}
            assert states & {BackendState.READY, BackendState.WARMING}, f"{name} waits in vain"
            ready = [b for b in alive if b.state is BackendState.READY and b.weight > 0]
            assert self.flying or not [b for b in ready if b.models], f"{name} is forgotten"

    def _check_time(self) -> None:
        """Nobody waits past a deadline, and somebody will be woken for the next one."""
        assert all(deadline > self.now for deadline in self.waiting.values())
        wakeup = self.scheduler.next_wakeup()
        if self.waiting:
            assert wakeup is not None
            assert wakeup <= min(self.waiting.values())
        if wakeup is not None:
            assert wakeup > self.now
            assert self.wake is not None
            assert self.wake <= wakeup


def walk(seed: int, steps: int) -> World:
    """A seeded walk through the same actions, weighted so that queues fill and empty."""
    random, world = Random(seed), World()
    world.change_backend(Backend("a", BackendState.READY, frozenset(MODELS), limit=2))
    for _ in range(steps):
        match random.choices(range(7), (40, 30, 10, 12, 5, 2, 3))[0]:
            case 0:
                world.arrive(
                    random.choice([1, 40, 50, 100, 500, 501, 2049, 30_000]),
                    random.choice(["", "x", "y"]),
                    random.randint(-1, 1),
                    model=random.choice(["m", "m", "n", "unknown"]),
                    avoid=frozenset(random.sample(NAMES, random.randint(0, 2))),
                )
            case 1 if world.flying:
                world.end(
                    random.choice(tuple(world.flying)),
                    random.choice([Finished, Failed, Abandoned]),
                )
            case 6 if world.waiting:
                world.end(random.choice(tuple(world.waiting)), Abandoned)
            case 2 if world.tickets:
                world.first_token(random.choice(tuple(world.tickets)))
            case 3:
                world.pass_time(random.random() * 2)
            case 4:
                world.change_backend(
                    Backend(
                        random.choice(NAMES),
                        random.choice((*BackendState, BackendState.READY)),
                        frozenset(MODELS),
                        random.choice(CLASS_SETS),
                        limit=random.randint(1, 6),
                        weight=random.choice([0.0, 1.0, 1.0, 2.0]),
                    )
                )
            case 5 if len(world.backends) > 1:
                world.remove_backend(random.choice(NAMES), random.random() < 0.5)
    world.change_backend(Backend("a", BackendState.WARMING, frozenset(MODELS)))
    world.arrive(10, "left waiting", 0)
    world.finish_everything()
    return world
