"""What was measured so far, in an Optuna study: in memory, or in an SQLite file that outlives us.

Optuna proposes what to measure (TPE) and says which candidate is hopeless (the median rule). What
it proposes depends on nothing but the seed and what was measured, so a search that was killed goes
on as if it had not been. Not here: when to ask it, and how a candidate is measured.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.tuning.objective import Objective, Window
from bench.tuning.space import Flags, Space

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

CONSTRAINTS = ("kv_usage", "preemptions", "throughput", "failures", "start")
STARTUP = 5
"""Full candidates before the median means something."""
_NAME = "forebay-tune"
_WINDOWS, _PHASE = "windows", "phase"
_TASK, _DEFAULTS = "task", "defaults"
_LONGEST = 1_000_003
"""More candidates than any search has: searches of different seeds share no step's seed."""


class BookFailed(Exception):
    """The study cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate and its windows. One that was cut short was hopeless before its last one."""

    flags: Flags
    windows: tuple[Window, ...]
    phase: str
    cut_short: bool


class Book:
    """`task` says what is searched for: a file with another task's measurements is refused."""

    def __init__(self, space: Space, task: dict[str, Any], seed: int, file: Path | None) -> None:
        """Raises BookFailed."""
        self.space = space
        self._seed = seed
        self._study = _open(file)
        self._claim(task, file)
        self._clear()

    @property
    def defaults(self) -> tuple[Window, ...]:
        """The engine without our flags; empty while it wasn't measured."""
        return _windows(self._study.user_attrs.get(_DEFAULTS, ()))

    @defaults.setter
    def defaults(self, windows: Sequence[Window]) -> None:
        self._study.set_user_attr(_DEFAULTS, [asdict(window) for window in windows])

    @property
    def entries(self) -> dict[Flags, Entry]:
        """Every candidate that was measured to its end, in that order."""
        found = (self._entry(trial) for trial in self._study.trials if _ended(trial))
        return {entry.flags: entry for entry in found}

    @property
    def lost(self) -> int:
        """Windows of candidates whose measurement was interrupted."""
        return sum(len(t.intermediate_values) for t in self._study.trials if not _ended(t))

    def propose(self) -> Flags | None:
        """What the optimiser wants to know next, and nobody knows yet; None: all is known."""
        from optuna.distributions import IntDistribution
        from optuna.samplers import TPESampler

        entries = self.entries
        # Of this very step, whether or not the search was interrupted before.
        seed = self._seed * _LONGEST + len(entries)
        self._study.sampler = TPESampler(seed=seed, n_startup_trials=STARTUP)
        trial = self._study.ask(
            {axis: IntDistribution(0, len(values) - 1) for axis, values in self.space.axes.items()}
        )
        place = dict(trial.params)
        self._drop(trial)
        flags = self.space.at(place)
        if flags is None or flags in entries:
            return self.space.nearest(place, entries)
        return flags

    def begin(self, flags: Flags, phase: str, objective: Objective) -> "Page":
        """A candidate's measurement begins."""
        self._study.enqueue_trial(self.space.place(flags))
        trial = self._study.ask()
        for axis, values in self.space.axes.items():
            trial.suggest_int(axis, 0, len(values) - 1)
        trial.set_user_attr(_PHASE, phase)
        return Page(self._study, trial, objective)

    def _entry(self, trial: "FrozenTrial") -> Entry:
        flags = self.space.at(trial.params)
        assert flags is not None, "only candidates are begun"
        windows = _windows(trial.user_attrs[_WINDOWS])
        cut_short = trial.state.name == "PRUNED"
        return Entry(flags, windows, trial.user_attrs[_PHASE], cut_short)

    def _claim(self, task: dict[str, Any], file: Path | None) -> None:
        before = self._study.user_attrs.get(_TASK)
        if before is None:
            self._study.set_user_attr(_TASK, task)
        elif before != task:
            other = [name for name in task if task[name] != before.get(name)]
            raise BookFailed(f"{file} is of another search: it differs in {', '.join(other)}")

    def _clear(self) -> None:
        """End what a killed search left open."""
        while any(trial.state.name == "WAITING" for trial in self._study.trials):
            self._drop(self._study.ask())
        for trial in self._study.trials:
            if trial.state.name == "RUNNING":
                self._drop(trial.number)

    def _drop(self, trial: "Trial | int") -> None:
        from optuna.trial import TrialState

        self._study.tell(trial, state=TrialState.FAIL)


class Page:
    """One candidate's measurement. `add` its windows, then `end` it."""

    def __init__(self, study: "Study", trial: "Trial", objective: Objective) -> None:
        self.windows: list[Window] = []
        self._study = study
        self._trial = trial
        self._objective = objective

    def add(self, window: Window) -> bool:
        """Whether it is hopeless: worse than the median of the others after as many windows, or
        ruled out by what further windows cannot make good."""
        self.windows.append(window)
        self._trial.report(self._objective.score(self.windows), len(self.windows) - 1)
        ruled_out = self._objective.violations(self.windows).keys() & {"kv_usage", "start"}
        return bool(ruled_out) or self._trial.should_prune()

    def end(self, *, cut_short: bool) -> None:
        from optuna.trial import TrialState

        violations = self._objective.violations(self.windows)
        self._trial.set_user_attr(_WINDOWS, [asdict(window) for window in self.windows])
        for name in CONSTRAINTS:
            self._trial.set_constraint(name, violations.get(name, 0.0))
        if cut_short:
            self._study.tell(self._trial, state=TrialState.PRUNED)
        else:
            self._study.tell(self._trial, self._objective.score(self.windows))


def _ended(trial: "FrozenTrial") -> bool:
    return trial.state.name in ("COMPLETE", "PRUNED")


def _windows(stored: Sequence[dict[str, Any]]) -> tuple[Window, ...]:
    return tuple(Window(**{**one, "ttfts": tuple(one["ttfts"])}) for one in stored)


def _open(file: Path | None) -> "Study":
    try:
        import optuna
    except ImportError as error:
        raise BookFailed("the search needs Optuna: pip install 'forebay[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=_NAME,
        storage=None if file is None else f"sqlite:///{file}",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
    )
