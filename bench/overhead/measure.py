"""One measurement: start everything pinned, send each load to each target in turn, several rounds.

Not here: the figures made of it (`summary`), the command line (`command`).
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import aiohttp
import orjson

from bench.children import Children, children
from bench.fake_vllm.options import TOKENIZER
from bench.fake_vllm.prompts import Prompts
from bench.load.prompts import CORPUS
from bench.overhead.accounts import rss_bytes, tree
from bench.overhead.answers import MODEL
from bench.overhead.loads import LOADS, Load, Result, Task
from bench.peers.commands import HOST, PEERS, Place

DIRECT = "direct"
PROMPT_TOKENS = 100
READY_WITHIN = 60.0
"""Seconds; a Forebay that meets its tokenizer for the first time reads it in some of them."""

Rounds = dict[str, dict[str, list[Result]]]
"""By target and load, one result a round."""


class OverheadFailed(Exception):
    """There is no figure; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`peers` beside the engine itself; `seconds` for each load, warm-up included."""

    peers: tuple[str, ...]
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; `pid` is a gateway's first process, 0 for the engine itself."""

    name: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Found:
    """`memory`: resident bytes of each process of each gateway after the last round. `by_ids` and
    `by_text`: how the prompts reached the engine in Forebay's turns."""

    rounds: Rounds
    memory: dict[str, list[int]]
    by_ids: int
    by_text: int


async def measure(plan: Plan, folder: Path) -> Found:
    """Raises OverheadFailed, and ChildEnded when a gateway or the engine ends."""
    async with children(folder) as started, aiohttp.ClientSession() as http:
        bench = Bench(plan, folder, http)
        return await bench.run(started)


class Bench:
    """The processes of one measurement, each on the core that its part has."""

    def __init__(self, plan: Plan, folder: Path, http: aiohttp.ClientSession) -> None:
        self._plan = plan
        self._folder = folder
        self._http = http
        self._engine_port = 0
        self._channels = {"by_ids": 0, "by_text": 0}
        self._head, self._tail = chat_body()

    async def run(self, started: Children) -> Found:
        with pinned(core_of(gateway=False)):
            module = "bench.overhead.engine"
            engine = await started.start("engine", sys.executable, "-m", module, announces=True)
        line = await engine.first_line()
        if not line:
            await asyncio.Event().wait()  # It ended; its watcher is about to say so.
        self._engine_port = orjson.loads(line)["port"]
        targets = [Target(DIRECT, self._engine_port, 0)]
        for name in self._plan.peers:
            targets.append(await self._start(started, name))
        rounds: Rounds = {target.name: {load: [] for load in LOADS} for target in targets}
        for _ in range(self._plan.rounds):
            for name, load in LOADS.items():
                for target in targets:
                    rounds[target.name][name].append(await self._send(target, load))
        memory = {t.name: [rss_bytes(pid) for pid in tree(t.pid)] for t in targets if t.pid}
        return Found(rounds, memory, **self._channels)

    async def _start(self, started: Children, name: str) -> Target:
        port = free_port()
        files = self._folder / name
        files.mkdir()
        place = Place(port, f"{HOST}:{self._engine_port}", files)
        with pinned(core_of(gateway=True)):
            child = await started.start(name, *PEERS[name](place))
        await self._until_answers(name, port)
        return Target(name, port, child.process.pid)

    async def _until_answers(self, name: str, port: int) -> None:
        """Ready is what answers a chat."""
        url = f"http://{HOST}:{port}/v1/chat/completions"
        body = f'{self._head}{self._tail},"max_tokens":1}}'.encode()
        headers = {"content-type": "application/json"}
        said = "no connection"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_WITHIN
        while loop.time() < deadline:
            try:
                async with self._http.post(url, data=body, headers=headers) as answer:
                    if answer.status == 200:
                        return
                    said = await answer.text()
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        raise OverheadFailed(f"{name} gave no answer within {READY_WITHIN:.0f} s: {said}")

    async def _send(self, target: Target, load: Load) -> Result:
        before = await self._pace(load)
        pids = tree(target.pid) if target.pid else []
        task = Task(target.port, load, self._plan.seconds, self._head, self._tail, pids)
        with pinned(core_of(gateway=False)):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.overhead.generator"),
                stdin=PIPE, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip
        try:
            out, error = await process.communicate(orjson.dumps(asdict(task)))
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise OverheadFailed(f"{target.name}, {load}: {error.decode().strip()}")
        after = await self._pace(replace(load, prefill=0.0, gap=0.0))
        if target.name == "forebay":
            for name in self._channels:
                self._channels[name] += after[name] - before[name]
        return Result(**orjson.loads(out))

    async def _pace(self, load: Load) -> dict[str, int]:
        """Set the engine's pace; it tells how many prompts it has had, by channel."""
        url = f"http://{HOST}:{self._engine_port}/pace"
        pace = {"prefill": load.prefill, "gap": load.gap}
        async with self._http.post(url, json=pace) as answer:
            counts: dict[str, int] = orjson.loads(await answer.read())
        return counts


def core_of(*, gateway: bool) -> set[int]:
    """The gateway's core, or that of engine and client; on a machine with one they share it."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[-1]} if gateway else {cores[0]}


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started in the block runs on these cores only, with all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def chat_body() -> tuple[str, str]:
    """A chat of PROMPT_TOKENS tokens, cut where each request puts its own 12 digits."""
    prompts = Prompts(TOKENIZER)
    words = (CORPUS / "conversation.txt").read_text().split()
    for count in range(1, len(words)):
        text = " ".join(words[:count])
        messages = [{"role": "user", "content": f"{0:012} {text}"}]
        rendered = prompts.render({"messages": messages})
        if len(prompts.encode(rendered, special=False)) >= PROMPT_TOKENS:
            break
    body = orjson.dumps({"model": MODEL, "messages": messages}).decode()
    head, _, tail = body.partition("0" * 12)
    return head, tail.removesuffix("}")


def free_port() -> int:
    """One whose next is free, too, for a peer that has a port for its metrics."""
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
