"""The whole search, within a budget: the engine's defaults, the ladders, then the optimiser.

Everything that it decides comes from the book, so it makes no difference whether the book was
written by this run or by an earlier one that was stopped. Not here: what an engine is (`simulated`,
`managed`), and whether the result is better than chance (`compare`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Protocol

from bench.tuning.book import Book, Entry, Page
from bench.tuning.ladder import Rung, upcoming
from bench.tuning.objective import FLOOR, Aim, Objective, Window, figures, noise
from bench.tuning.space import Flags

LADDER, SEARCH = "ladder", "search"
NOISY = 0.15
"""A step of the ladder whose windows disagree by more (`objective.noise`) is repeated."""
ALIKE = 0.01
"""Scores that differ by less are alike: then the flags that are nearer to the rules win."""


class RunningEngine(Protocol):
    async def window(self, number: int, repeat: int = 0) -> Window:
        """Send the window's requests and say what came of them. A repeat sends requests of the same
        sizes at the same times, with other texts."""
        ...


class Evaluator(Protocol):
    def started(self, flags: Flags | None) -> AbstractAsyncContextManager[RunningEngine]:
        """An engine with these flags (None: as it starts without ours), ready and warm."""
        ...


class NothingAllowed(Exception):
    """Every candidate was ruled out."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`windows` for a candidate, at most so many `evaluations` (of all windows each), and no
    candidate is begun when it and a comparison of so many `rounds` would probably not end within
    so many `seconds`."""

    windows: int = 3
    evaluations: float = 60.0
    seconds: float = inf
    rounds: int = 0


@dataclass(slots=True)
class Pace:
    """The slowest start and the slowest window of this run, in seconds."""

    start: float = 0.0
    window: float = 0.0

    def seconds(self, starts: int, windows: int) -> float:
        return starts * self.start + windows * self.window


Measure = Callable[[int, int], Awaitable[Window]]
Tell = Callable[[str, Flags | None, Sequence[Window], bool], None]
"""Phase, candidate, its windows, whether it was cut short."""


@dataclass(slots=True)
class Search:
    """Call `run`, then read the result; `tell` hears of each candidate at its end."""

    evaluator: Evaluator
    book: Book
    aim: Aim
    budget: Budget
    tell: Tell
    pace: Pace = field(default_factory=Pace)
    _began: float = field(default_factory=monotonic)

    @property
    def objective(self) -> Objective:
        return Objective(self.aim, FLOOR * figures(self.book.defaults).throughput)

    @property
    def evaluations(self) -> float:
        """What was spent: all windows of a candidate are one, those of one cut short its share.

        The defaults count, and so does what an interruption lost.
        """
        windows = sum(len(entry.windows) for entry in self.book.entries.values())
        return (windows + len(self.book.defaults) + self.book.lost) / self.budget.windows

    async def run(self) -> None:
        """Measure until the budget is spent or everything is known."""
        if not self.book.defaults:
            await self._measure_defaults()
        objective = self.objective
        while self._affordable():
            step = self._rung(objective)
            if step is not None:
                page = self.book.begin(step, LADDER, objective)
            elif (proposed := self.book.propose(SEARCH, objective)) is not None:
                page = proposed
            else:
                return
            await self._measure(page)

    def best(self) -> Entry:
        """The chosen candidate: of those alike the one nearest to the rules. Raises
        NothingAllowed."""
        objective, space = self.objective, self.book.space
        allowed = {
            entry.flags: entry
            for entry in self.book.entries.values()
            if not entry.cut_short and not objective.violations(entry.windows)
        }
        if not allowed:
            raise NothingAllowed(
                "cannot improve on the engine's defaults: every candidate was ruled out by the "
                "constraints; --json FILE has by which, for each"
            )
        scores = {flags: objective.score(entry.windows) for flags, entry in allowed.items()}
        least = min(scores.values())
        alike = [f for f, score in scores.items() if objective.worse_by(score, least) <= ALIKE]
        rules = space.place(space.start)
        return allowed[min(alike, key=lambda f: (space.distance(f, rules), scores[f]))]

    def nearest(self) -> Entry:
        """The one to show where none is allowed: what it violates, it violates by the least.
        Raises NothingAllowed when none was measured."""
        entries = self.book.entries.values()
        if not entries:
            raise NothingAllowed("no candidate was measured: raise --evaluations, or --minutes")
        return min(entries, key=lambda one: sum(self.objective.violations(one.windows).values()))

    def _rung(self, objective: Objective) -> Flags | None:
        told = {
            entry.flags: Rung(
                inf if entry.cut_short else objective.score(entry.windows),
                allowed=not objective.violations(entry.windows),
            )
            for entry in self.book.entries.values()
        }
        return upcoming(self.book.space, told)

    def _affordable(self) -> bool:
        budget, pace = self.budget, self.pace
        ahead = pace.seconds(1, budget.windows)
        if budget.rounds:
            ahead += pace.seconds(2, 2 * budget.rounds)
        in_time = monotonic() - self._began + ahead <= budget.seconds
        return in_time and self.evaluations + 1 <= budget.evaluations

    async def _measure_defaults(self) -> None:
        windows: list[Window] = []
        async with self._engine(None) as window:
            for number in range(self.budget.windows):
                windows.append(await window(number, 0))
        self.book.defaults = tuple(windows)
        self.tell("defaults", None, windows, False)

    async def _measure(self, page: Page) -> None:
        hopeless = False
        async with self._engine(page.flags) as window:
            while not hopeless and self._wanted(page):
                repeat, number = divmod(len(page.windows), self.budget.windows)
                hopeless = page.add(await window(number, repeat))
        cut_short = hopeless and len(page.windows) < self.budget.windows
        page.end(cut_short=cut_short)
        self.tell(page.phase, page.flags, page.windows, cut_short)

    @asynccontextmanager
    async def _engine(self, flags: Flags | None) -> AsyncIterator[Measure]:
        """An engine whose times are taken: its start with its end, and each window."""
        began, spent = monotonic(), 0.0
        async with self.evaluator.started(flags) as engine:

            async def timed(number: int, repeat: int) -> Window:
                nonlocal spent
                before = monotonic()
                window = await engine.window(number, repeat)
                seconds = monotonic() - before
                spent += seconds
                self.pace.window = max(self.pace.window, seconds)
                return window

            yield timed
        self.pace.start = max(self.pace.start, monotonic() - began - spent)

    def _wanted(self, page: Page) -> bool:
        """Whether a further window is: all, and all once more where a step's disagree."""
        measured, each = len(page.windows), self.budget.windows
        if measured == each:
            return page.phase == LADDER and noise(page.windows) > NOISY
        return measured < 2 * each
