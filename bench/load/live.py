"""What a person sees while the load runs: progress, and the percentiles of the latest answers."""

import time
from collections import deque

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.load.sample import Sample
from bench.load.summary import distribution
from bench.progress import Shown

WINDOW = 500
INTERVAL = 0.25


class Live(Shown):
    """A progress line on a terminal, nothing elsewhere. Use in a `with` block."""

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(
            Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=console,
                auto_refresh=False,
                disable=not console.is_terminal,
            )
        )
        self._task = self._progress.add_task("", total=total)
        self._latest: dict[str, deque[float]] = {}
        self._done = 0
        self._errors = 0
        self._next = 0.0

    def add(self, sample: Sample) -> None:
        self._done += 1
        self._errors += bool(sample.error)
        if sample.ttft is not None:
            latest = self._latest.setdefault(sample.service_class, deque(maxlen=WINDOW))
            latest.append(sample.ttft)
        if not self._progress.disable and time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL
            self._progress.update(self._task, completed=self._done, description=self._line())
            self._progress.refresh()

    def _line(self) -> str:
        parts = [f"errors {self._errors}"] if self._errors else []
        for name, latest in sorted(self._latest.items()):
            numbers = distribution(latest)
            parts.append(f"{name} TTFT p50 {numbers['p50']:.0f} p99 {numbers['p99']:.0f} ms")
        return " · ".join(parts)
