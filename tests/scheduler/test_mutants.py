"""Planted faults that the seeded walks must notice: proof that the properties bite.

Each mutant is one line of the scheduler changed in a copy of the package; a walk in a process of
its own has to fail with it, and to pass without.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MUTANTS = {
    "a slot is never given back": ("ledger.py", "        del self.flights[flight.ticket.id]\n", ""),
    "a class count is never given back": (
        "books.py",
        "        self.pools.count(flight, -1)\n",
        "",
    ),
    "a backlog is given back twice": (
        "ledger.py",
        "self.prefill_backlog -= flight.tokens",
        "self.prefill_backlog -= 2 * flight.tokens",
    ),
    "a backend's limit is off by one": (
        "dispatch.py",
        "len(m.flights) < m.limit.effective",
        "len(m.flights) <= m.limit.effective",
    ),
    "a class limit is not looked at": (
        "dispatch.py",
        "pool.asleep_until <= now and not pool.at_limit",
        "pool.asleep_until <= now",
    ),
    "a deadline is late": ("core.py", "first[0] <= turn.now", "first[0] < turn.now"),
    "nobody is woken for a deadline": ("core.py", "at = min(at, first[0])", "pass"),
    "an early wake-up is not asked for": ("core.py", "wakeup < self._announced", "False"),
    "an expired ticket keeps its deadline": (
        "books.py",
        "        pool = self.waiting.pop(ticket_id)\n        self.expiry.discard(ticket_id)\n",
        "        pool = self.waiting.pop(ticket_id)\n",
    ),
    "a draining scheduler takes tickets": ("core.py", "if books.draining:", "if False:"),
    "weight 0 takes tickets": ("fleet.py", " and backend.weight > 0", ""),
    "avoided backends are taken": ("fleet.py", "not in avoid] or ready", "not in ()] or ready"),
    "a down backend takes tickets": ("fleet.py", "backend.state is BackendState.READY and", ""),
    "an abandoned ticket stays queued": (
        "core.py",
        "            self._books.dequeue(event.ticket_id)\n        else",
        "            pass\n        else",
    ),
    "the queue is not emptied when all is down": (
        "core.py",
        "if not alive[model]:",
        "if False:",
    ),
    "a removed backend is kept": ("fleet.py", "if member.removed and not", "if False and not"),
    "a limit does not recover": ("burst.py", "self._share = min(1.0,", "min(1.0,"),
    "a wrong class": ("pools.py", "if tokens <= _bound", "if tokens < _bound"),
    "a blocked class sleeps on": (
        "books.py",
        "pool.asleep_until = -inf\n\n    def _pre",
        "pass\n\n    def _pre",
    ),
}

PROBE = """
from tests.scheduler.test_properties import walk
for seed in range(3):
    walk(seed, 400)
"""


def _fails(package_root: Path) -> bool:
    run = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=package_root,
        env={"PYTHONPATH": str(package_root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return run.returncode != 0


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("scheduler", "tests/scheduler"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "tests" / "__init__.py").touch()
    return tmp_path


def test_the_walks_pass_without_a_mutant(copy: Path) -> None:
    assert not _fails(copy)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_walks_notice(name: str, copy: Path) -> None:
    file, old, new = MUTANTS[name]
    path = copy / "scheduler" / file
    source = path.read_text()
    assert old in source, "the mutant's line is gone: plant it anew"
    path.write_text(source.replace(old, new, 1))
    assert _fails(copy)
