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
