"""`forebay bench` is `python -m bench`."""

import subprocess
import sys

import pytest

COMMAND = (sys.executable, "-m", "gateway.cli", "bench")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_its_help_is_that_of_bench():
    said = run("--help")
    assert said.returncode == 0
    for command in ("load", "compare", "overhead"):
        assert command in said.stdout


@pytest.mark.slow
def test_arguments_and_the_exit_status_pass():
    ended = run("load", "http://127.0.0.1:9", "--prompt", "nonsense")
    assert ended.returncode == 1
    assert "bench load: " in ended.stderr
