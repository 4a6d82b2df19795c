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
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STARTUP = 5
"""Full candidates before the median means something."""
LEAST = 200
"""The source: a step of the search is at least so many requests."""
_NAME = "forebay-tune"
_MEASURED, _TASK, _DEFAULTS = "measured", "task", "defaults"
_EXCESS = "excess"
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

    def begin(self, flags: Flags, phase: str, objective: Objective) -> "Page":
        """The measurement of this candidate begins."""
        self._study.enqueue_trial(self.space.place(flags))
        return Page(self._study, self._study.ask(self._distributions()), flags, phase, objective)

    def propose(self, phase: str, objective: Objective) -> "Page | None":
        """The measurement begins of what the optimiser wants to know next, or of what is nearest to
        that and not known yet; None: all is known."""
        from optuna.samplers import TPESampler

        entries = self.entries
        # Of this very step, whether or not the search was interrupted before.
        seed = self._seed * _LONGEST + len(entries)
        self._study.sampler = TPESampler(seed=seed, n_startup_trials=STARTUP)
        trial = self._study.ask(self._distributions())
        flags = self.space.at(trial.params)
        if flags is not None and flags not in entries and self.space.place(flags) == trial.params:
            return Page(self._study, trial, flags, phase, objective)
        self._drop(trial)
        nearest = self.space.nearest(trial.params, entries)
        return None if nearest is None else self.begin(nearest, phase, objective)

    def _distributions(self) -> "dict[str, BaseDistribution]":
        from optuna.distributions import IntDistribution

        return {a: IntDistribution(0, len(values) - 1) for a, values in self.space.axes.items()}

    def _entry(self, trial: "FrozenTrial") -> Entry:
        flags = self.space.at(trial.params)
        assert flags is not None, "only candidates are begun"
        measured = trial.user_attrs[_MEASURED]
        cut_short = trial.state.name == "PRUNED"
        return Entry(flags, _windows(measured["windows"]), measured["phase"], cut_short)

    def _claim(self, task: dict[str, Any], file: Path | None) -> None:
        before = self._study.user_attrs.get(_TASK)
        if before is None:
            self._study.set_user_attr(_TASK, task)
        elif before != task:
            other = [name for name in task if task[name] != before.get(name)]
            raise BookFailed(
                f"{file} is of another search: it differs in {', '.join(other)}; "
                "ask for the same, or name another file with --study"
            )

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

    def __init__(
        self, study: "Study", trial: "Trial", flags: Flags, phase: str, objective: Objective
    ) -> None:
        self.flags = flags
        self.phase = phase
        self.windows: list[Window] = []
        self._study = study
        self._trial = trial
        self._objective = objective

    def add(self, window: Window) -> bool:
        """Whether it is hopeless: ruled out by what further windows cannot make good, or, after
        requests enough, worse than the median of the others after as many windows."""
        self.windows.append(window)
        self._trial.report(self._objective.score(self.windows), len(self.windows) - 1)
        if self._objective.violations(self.windows).keys() & {"kv_usage", "start"}:
            return True
        enough = sum(window.requests for window in self.windows) >= LEAST
        return enough and self._trial.should_prune()

    def end(self, *, cut_short: bool) -> None:
        from optuna.trial import TrialState

        windows = [asdict(window) for window in self.windows]
        self._trial.set_user_attr(_MEASURED, {"phase": self.phase, "windows": windows})
        excess = self._objective.violations(self.windows)
        self._trial.set_constraint(_EXCESS, sum(excess.values()))
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
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.create_study(
            study_name=_NAME,
            storage=None if file is None else f"sqlite:///{file}",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
        )
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        # Its first line: what follows are statements in SQL and links.
        why = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise BookFailed(
            f"cannot keep a study in {file} ({why}): --study takes a new file in a folder that "
            "exists, or one that an earlier tune wrote"
        ) from error
