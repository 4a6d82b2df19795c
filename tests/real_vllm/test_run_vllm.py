"""`make run-vllm` as a person runs it: SmolLM2 answers, and Ctrl-C leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

from bench.demo import free_port
from bench.vllm_env.layout import REPOSITORY, Layout
from tests.real_vllm.metrics import seconds_until

_LAST_LINE = "Ctrl-C stops everything.\n"


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_it_answers_and_leaves_nothing_behind(layout: Layout) -> None:
    command = [sys.executable, "-m", "bench.run_vllm", "--port", str(free_port())]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = "".join(iter(process.stdout.readline, _LAST_LINE))
            below = descendants(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "The capital of France is Paris." in said
    assert "37 prompt tokens sent as ids" in said
    # Redis, forebay, and vLLM with its leash, server, engine and worker at the least.
    assert len(below) >= 5
    seconds_until(lambda: not any(alive(pid) for pid in below), within=5)
