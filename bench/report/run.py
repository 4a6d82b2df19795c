"""Running the steps, each in a process of its own, one after the other."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report.suite import Step

ROOT = Path(__file__).resolve().parents[2]
"""Paths among the steps' arguments are from here."""

TAIL = 800


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a step: 0 is well; `said` is the end of its output when it is not."""

    name: str
    arguments: tuple[str, ...]
    status: int
    seconds: float
    said: str = ""


def run(
    steps: Sequence[Step], directory: Path, tell: Callable[[str], None], *, quick: bool
) -> list[Ended]:
    """Each writes `DIRECTORY/NAME.json` and its words to `DIRECTORY/NAME.txt`."""
    directory.mkdir(parents=True, exist_ok=True)
    ended = []
    for step in steps:
        result = _one(step, directory.resolve(), quick=quick)
        ended.append(result)
        outcome = f"{result.seconds:.0f} s" if not result.status else f"failed: {result.said}"
        tell(f"{step.name}: {outcome}")
    return ended


def _one(step: Step, directory: Path, *, quick: bool) -> Ended:
    arguments = (step.command, *((step.quick or ()) if quick else step.full))
    file = directory / f"{step.name}.json"
    file.unlink(missing_ok=True)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments, "--json", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120"},
        text=True,
        check=False,
    )
    (directory / f"{step.name}.txt").write_text(done.stdout)
    said = done.stdout[-TAIL:].strip() if done.returncode else ""
    return Ended(step.name, arguments, done.returncode, time.monotonic() - began, said)
