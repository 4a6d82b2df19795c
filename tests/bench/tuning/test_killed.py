"""A search that is killed, not asked to stop, goes on from its file."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.tuning.landscape import Landscape
from tests.bench.tuning.test_search import BRIEF, search


@pytest.mark.slow
def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "study"
    command = (sys.executable, "-m", "tests.bench.tuning.killed", str(file), "12")
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    whole = search(Landscape(), BRIEF)
    asyncio.run(whole.run())
    resumed = search(Landscape(), BRIEF, file)
    assert 2 <= len(resumed.book.entries) < len(whole.book.entries)
    asyncio.run(resumed.run())
    entries = list(resumed.book.entries)
    assert entries == list(whole.book.entries)[: len(entries)]
    assert len(entries) >= len(whole.book.entries) - 2
