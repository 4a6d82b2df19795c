"""Child processes: watched while they live, and none left behind however the block ends."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bench.children import Child, ChildEnded, children
from tests.bench.waiting import reaches

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
PARENT = (
    "import subprocess, sys; "
    f"child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], stdout=subprocess.PIPE); "
    "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
)
BROKEN = "import sys; print('line 1'); print('no such model', file=sys.stderr); sys.exit(3)"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A grandchild that was killed may stay a zombie until its new parent looks at it.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


async def test_children_live_as_long_as_the_block(tmp_path: Path):
    async with children(tmp_path) as started:
        child = await started.start("sleeper", sys.executable, "-c", SLEEPER, announces=True)
        assert await child.first_line() == b"up\n"
        assert is_alive(child.process.pid)
    assert child.process.returncode == -15


async def test_a_child_that_ends_ends_the_block_and_its_log_is_told(tmp_path: Path):
    other: list[Child] = []

    async def block() -> None:
        async with children(tmp_path) as started:
            other.append(await started.start("sleeper", sys.executable, "-c", SLEEPER))
            await started.start("broken", sys.executable, "-c", BROKEN)
            await asyncio.Event().wait()

    with pytest.raises(ChildEnded, match="broken ended with status 3") as ended:
        await block()
    assert "no such model" in ended.value.log
    assert "line 1" in ended.value.log
    assert other[0].process.returncode is not None


async def test_a_grandchild_that_ignores_sigterm_is_killed_with_its_group(tmp_path: Path):
    async with children(tmp_path, grace=0.3) as started:
        child = await started.start("parent", sys.executable, "-c", PARENT, announces=True)
        grandchild = int(await child.first_line())
        assert is_alive(grandchild)
    await reaches(lambda: not is_alive(grandchild))


async def test_a_stubborn_child_is_killed_after_the_grace(tmp_path: Path):
    async with asyncio.timeout(5), children(tmp_path, grace=0.2) as started:
        child = await started.start("stubborn", sys.executable, "-c", STUBBORN, announces=True)
        await child.first_line()
    assert child.process.returncode == -9


async def test_an_error_in_the_block_stops_them_too(tmp_path: Path):
    child: list[Child] = []

    async def block() -> None:
        async with children(tmp_path) as started:
            child.append(await started.start("sleeper", sys.executable, "-c", SLEEPER))
            raise LookupError

    with pytest.raises(LookupError):
        await block()
    assert child[0].process.returncode is not None


async def test_a_command_that_does_not_exist_is_an_error(tmp_path: Path):
    async with children(tmp_path) as started:
        with pytest.raises(FileNotFoundError):
            await started.start("nothing", tmp_path / "no-such-command")
