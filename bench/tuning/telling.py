"""What a person sees while the search goes on: a line for each candidate, a bar on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.progress import Shown
from bench.tuning.objective import Aim, Window, figures
from bench.tuning.space import Flags


class Telling(Shown):
    """Use in a `with` block. `total` is the budget in evaluations."""

    def __init__(self, aim: Aim, windows: int, total: float) -> None:
        console = Console(stderr=True, highlight=False)
        self._aim = aim
        self._windows = windows
        super().__init__(
            Progress(
                BarColumn(),
                TextColumn("{task.completed:.1f} of {task.total:g} evaluations"),
                TimeElapsedColumn(),
                console=console,
                disable=not console.is_terminal,
            )
        )
        self._console = console
        self._task = self._progress.add_task("", total=total)

    def candidate(
        self, phase: str, flags: Flags | None, windows: Sequence[Window], cut_short: bool
    ) -> None:
        found = figures(windows)
        value = (
            f"TTFT p99 {found.ttft_p99 * 1e3:.1f} ms"
            if self._aim is Aim.TTFT
            else f"goodput {found.goodput:.2f}/s"
        )
        refused = next((window.refused for window in windows if window.refused), "")
        end = ", cut short" if cut_short else ""
        self._console.print(
            f"{phase:8}  {refused or value}{end}  {found.requests} requests, "
            f"{found.throughput:.2f}/s, KV {found.kv_usage:.0%}, {found.preemptions} preempted  "
            f"{flags or 'as the engine starts by itself'}",
            soft_wrap=True,
        )
        self._progress.update(self._task, advance=len(windows) / self._windows)
