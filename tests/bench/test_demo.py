"""The demo as a person runs it: it answers, it stops on Ctrl-C, and it leaves nothing behind."""

import asyncio
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from bench.demo import find_redis, free_port, stages
from tests.bench.test_children import is_alive
from tests.bench.waiting import reaches

COMMAND = (sys.executable, "-m", "bench.demo")


def descendants(pid: int) -> list[int]:
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [pid for child in below for pid in descendants(child)]


@pytest.mark.slow
async def test_it_answers_says_what_to_try_and_leaves_nothing_behind():
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--port", str(free_port()), stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        said = (await process.stdout.readuntil(b"Ctrl-C stops everything.")).decode()
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert "You wrote “Why does a water mill" in said
    assert "First token after" in said
    assert "tokenize" in said
    assert "Class short, backend short" in said
    assert "redis-cli -p" in said
    assert len(below) >= 4
    await reaches(lambda: not any(is_alive(pid) for pid in below))


def test_a_port_in_use_is_said_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"demo: port {port} is in use: stop what listens there, or choose another with --port\n"
    )
    assert ended.stdout == ""


def test_the_redis_it_finds_runs():
    redis = find_redis()
    for command in (redis.server, redis.client):
        ended = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        assert "redis" in ended.stdout.lower()


def test_stages_are_told_in_words():
    assert stages("read;dur=0.1, queue;dur=0.0") == "read 0.1 ms + queue 0.0 ms"
