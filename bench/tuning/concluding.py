"""What a finished search leaves: the files that were asked for, and what a person reads.

The files come first: whatever fails then, what took hours to measure is kept.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.plans import file
from bench.load.output import check_writable, folder_made, write_json
from bench.pictures import style
from bench.pictures.tune import draw_search
from bench.tuning.book import Entry
from bench.tuning.compare import Comparison
from bench.tuning.evidence import plan_of, reasons, verdict
from bench.tuning.search import Search
from bench.tuning.targets import Target


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go besides the terminal."""

    json: Path | None
    pictures: Path | None
    plan: Path | None

    def check(self) -> None:
        """Before anything is measured. Raises NotWritable and MissingLibrary."""
        check_writable(self.json, self.plan)
        if self.pictures is not None:
            style.check()
            folder_made(self.pictures)


@dataclass(frozen=True, slots=True)
class Result:
    """A search that has ended. Without a comparison nobody asked for one."""

    target: Target
    search: Search
    comparison: Comparison | None


def conclude(result: Result, written: dict[str, Any], outputs: Outputs) -> None:
    """Write and show it. Raises NothingAllowed, at its end, when every candidate is ruled out."""
    if outputs.json is not None:
        write_json(outputs.json, written)
    if outputs.pictures is not None:
        _draw(outputs.pictures, written)
    _show(written)
    chosen = result.search.best()
    if result.comparison is not None:
        print(verdict(result.comparison))
    if outputs.plan is not None:
        _write_plan(result, chosen, outputs.plan)


def _draw(folder: Path, written: dict[str, Any]) -> None:
    if any(len(points) > 1 for points in written["detail"]["curves"].values()):
        print(f"wrote {draw_search(folder, written)}")
    else:
        print("no picture is drawn: no flag was measured at two values", file=sys.stderr)


def _show(written: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for key, value in written["summary"].items():
        told: Sequence[Any] = (
            [f"--{k} {v}" for k, v in value.items()] if "flags" in key else [value]
        )
        console.print(f"{key:24} {' '.join(map(str, told))}")
    for flag, reason in written["detail"]["reasons"].items():
        console.print(f"--{flag}: {reason}")


def _write_plan(result: Result, chosen: Entry, path: Path) -> None:
    """The plan, if there is something to write into it."""
    if not _better(result, chosen):
        print("no plan is written: nothing was found that is better", file=sys.stderr)
        return
    target, search = result.target, result.search
    told = reasons(chosen, search.book, search.objective)
    path.write_text(file.write(plan_of(target.plan, target.name, chosen.flags, told)))
    print(f"wrote {path}")


def _better(result: Result, chosen: Entry) -> bool:
    """By the comparison, or without one by what the search itself measured."""
    if result.comparison is not None:
        return result.comparison.better
    score, book = result.search.objective.score, result.search.book
    return score(chosen.windows) < score(book.defaults)
