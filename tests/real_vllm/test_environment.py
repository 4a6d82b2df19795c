"""The environment is built once, in the user's cache, and named after what it is made from."""

import subprocess
import sys
from pathlib import Path

from bench.vllm_env.layout import REPOSITORY, Layout, locate


def test_cache_is_where_the_user_wants_it() -> None:
    given = {"FOREBAY_CACHE": "/one", "XDG_CACHE_HOME": "/two"}
    assert locate(given).environment.parent == Path("/one")
    del given["FOREBAY_CACHE"]
    assert locate(given).models.parent == Path("/two/forebay")
    assert locate({}).cache == Path.home().resolve() / ".cache" / "forebay"


def test_second_build_changes_nothing(layout: Layout) -> None:
    made = (layout.environment, layout.stamp, layout.models, layout.cache / "build.log")

    def state() -> list[int]:
        return [path.stat().st_mtime_ns for path in made]

    before = state()
    command = [sys.executable, "-m", "bench.vllm_env"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in said.stdout.splitlines()] == ["environment", "models"]
    assert str(layout.environment) in said.stdout
    assert state() == before


_YIELDS = """
import os, time
began, used = time.perf_counter(), time.process_time()
for _ in range(1000):
    os.sched_yield()
print(time.perf_counter() - began, time.process_time() - used)
"""


def test_its_processes_wait_asleep(layout: Layout) -> None:
    command = [str(layout.python), "-c", _YIELDS]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    took, used = map(float, said.stdout.split())
    assert took > 0.02, "a thousand times 20 µs"
    assert used < took / 2, "it span"
