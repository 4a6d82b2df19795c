"""One gateway with one relay process, then with more, under the same saturating load.

With one, the gateway has a core to itself and engine and client have another; with more, all of
them share the machine's cores: there is nothing faster to be had on it. What engine and client take
is therefore measured as well. Not here: the figures made of it (`summary`).
"""

import asyncio
import os
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from bench.children import Children, children
from bench.overhead.accounts import cpu_seconds, tree
from bench.overhead.cores import core_of, pinned
from bench.overhead.loads import LOADS, Result, Task
from bench.overhead.stand import READY_WITHIN, OverheadFailed, chat_body, free_port

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Turn:
    """One load against one gateway; CPU in seconds. `brain` is the gateway's first process."""

    result: Result
    brain: float
    engine: float


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway and the cores that engine and client have in its turns."""

    pid: int
    port: int
    others: set[int]


async def measure(
    workers: int, rounds: int, seconds: float, folder: Path
) -> Mapping[int, list[Turn]]:
    """The turns by number of relay processes, 1 and `workers`, taken in turn.

    Raises OverheadFailed, and ChildEnded when a gateway or the engine ends.
    """
    head, tail = chat_body()
    every = os.sched_getaffinity(0)
    async with children(folder) as started:
        module = "bench.overhead.engine"
        engine = await started.start("engine", sys.executable, "-m", module, announces=True)
        upstream = orjson.loads(await engine.first_line())["port"]
        gateways = {
            1: await _start(started, 1, upstream, core_of(gateway=True)),
            workers: await _start(started, workers, upstream, every),
        }
        turns: dict[int, list[Turn]] = {count: [] for count in gateways}
        for _ in range(rounds):
            for count, gateway in gateways.items():
                os.sched_setaffinity(engine.process.pid, gateway.others)
                watched = tree(gateway.pid)
                task = Task(gateway.port, LOADS["saturated"], seconds, head, tail, watched)
                turns[count].append(await _take(gateway, engine.process.pid, task))
    return turns


async def _start(started: Children, workers: int, upstream: int, cores: set[int]) -> Gateway:
    port = free_port()
    with pinned(cores):
        child = await started.start(
            f"forebay-{workers}",
            *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(port)),
            *("--backend", f"http://{HOST}:{upstream}", "--workers", str(workers)),
            *("--request-log", os.devnull),
        )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_WITHIN
    while not await asyncio.to_thread(_is_ready, port):
        if loop.time() > deadline:
            raise OverheadFailed(f"forebay with {workers} workers was not ready in time")
        await asyncio.sleep(0.1)
    others = core_of(gateway=False) if workers == 1 else cores
    return Gateway(child.process.pid, port, others)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


async def _take(gateway: Gateway, engine: int, task: Task) -> Turn:
    before = cpu_seconds([gateway.pid]), cpu_seconds([engine])
    with pinned(gateway.others):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.overhead.generator"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
    try:
        out, error = await process.communicate(orjson.dumps(asdict(task)))
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise OverheadFailed(error.decode().strip())
    result = Result(**orjson.loads(out))
    # These two are of the warm-up, too: they are scaled to the time that was measured.
    share = result.seconds / task.seconds
    brain = (cpu_seconds([gateway.pid]) - before[0]) * share
    return Turn(result, brain, (cpu_seconds([engine]) - before[1]) * share)
