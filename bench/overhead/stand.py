"""Where a measurement takes place: an engine, and gateways before it, each on the core of its part.

Not here: which loads are sent how often (`measure`, `stall`, `soak`), and what they are (`loads`).
"""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import orjson

from bench.children import Children, children
from bench.fake_vllm.options import TOKENIZER
from bench.fake_vllm.prompts import Prompts
from bench.load.prompts import CORPUS
from bench.overhead import source as sources
from bench.overhead.accounts import tree
from bench.overhead.answers import MODEL
from bench.overhead.cores import core_of, pinned
from bench.overhead.loads import Load, Result, Task
from bench.overhead.source import INSTANT, Source, Upstream
from bench.peers.commands import HOST, PEERS, Command, Place

DIRECT = "direct"
PROMPT_TOKENS = 100
READY_WITHIN = 60.0
"""Seconds; a Forebay that meets its tokenizer for the first time reads it in some of them."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class OverheadFailed(Exception):
    """There is no figure; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; `pid` is a gateway's first process, 0 for the engine itself."""

    name: str
    port: int
    pid: int
    host: str = HOST


class Stand:
    """The processes of one measurement."""

    def __init__(
        self, folder: Path, http: aiohttp.ClientSession, started: Children, upstream: Upstream
    ) -> None:
        self.channels = {"by_ids": 0, "by_text": 0} if upstream.paced else {}
        self.direct = Target(DIRECT, upstream.port, 0, upstream.host)
        self._folder = folder
        self._http = http
        self._started = started
        self._upstream = upstream
        # A real model would end some of its answers early.
        own = {} if upstream.paced else {"ignore_eos": True}
        self._head, self._tail = chat_body(upstream.model, own)

    async def start(self, name: str, command: Command | None = None) -> Target:
        """Start a peer, by another command than its usual one if given; ready when it returns."""
        port = free_port()
        files = self._folder / name
        files.mkdir()
        behind = self._upstream
        place = Place(port, f"{behind.host}:{behind.port}", files, model=behind.model)
        with pinned(core_of(gateway=True)):
            child = await self._started.start(name, *(command or PEERS[name])(place))
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

    async def send(self, target: Target, load: Load, seconds: float) -> Result:
        """Send one load to one target. Raises OverheadFailed when a request fails."""
        before = await self._pace(load)
        pids = tree(target.pid) if target.pid else []
        task = Task(target.port, load, seconds, self._head, self._tail, pids, target.host)
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
            for name in self.channels:
                self.channels[name] += after[name] - before[name]
        return Result(**orjson.loads(out))

    async def ask(self, target: Target, path: str) -> str:
        """What a target answers to a GET."""
        async with self._http.get(f"http://{target.host}:{target.port}{path}") as answer:
            return await answer.text()

    async def _pace(self, load: Load) -> dict[str, int]:
        """Set the pace of an engine that has none of its own; it tells how many prompts it has
        had, by channel."""
        if not self._upstream.paced:
            return {}
        url = f"http://{HOST}:{self._upstream.port}/pace"
        pace = {"prefill": load.prefill, "gap": load.gap}
        async with self._http.post(url, json=pace) as answer:
            counts: dict[str, int] = orjson.loads(await answer.read())
        return counts


@asynccontextmanager
async def standing(folder: Path, source: Source = INSTANT) -> AsyncIterator[Stand]:
    """A stand that lives as long as the block. Raises ChildEnded when one of its processes ends,
    and what `source.start` does."""
    async with children(folder) as started, aiohttp.ClientSession() as http:
        yield Stand(folder, http, started, await sources.start(source, started))


def chat_body(model: str = MODEL, own: Mapping[str, Any] = NOTHING) -> tuple[str, str]:
    """A chat of PROMPT_TOKENS tokens (as our tokenizer counts) with `own` fields, cut where each
    request puts its own 12 digits."""
    prompts = Prompts(TOKENIZER)
    words = (CORPUS / "conversation.txt").read_text().split()
    for count in range(1, len(words)):
        text = " ".join(words[:count])
        messages = [{"role": "user", "content": f"{0:012} {text}"}]
        rendered = prompts.render({"messages": messages})
        if len(prompts.encode(rendered, special=False)) >= PROMPT_TOKENS:
            break
    body = orjson.dumps({"model": model, **own, "messages": messages}).decode()
    head, _, tail = body.partition("0" * 12)
    return head, tail.removesuffix("}")


def free_port() -> int:
    """One whose next is free, too, for a peer that has a port for its metrics."""
    while True:
        with socket.create_server((HOST, 0)) as probe:
            port: int = probe.getsockname()[1]
            try:
                socket.create_server((HOST, port + 1)).close()
            except OSError:
                continue
            return port
