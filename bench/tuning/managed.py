"""Candidates as real engines: started with their flags, warmed, measured through a gateway.

Each has its own engine and gateway, from start to end; the gateway's warm gate says when it may be
measured, and its limit is max_num_seqs, as under `forebay up`. Requests are `bench load`'s; KV
usage and preemptions are what the engine's own metrics say meanwhile.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from rich.console import Console

from backends.managed.node import ManagedNode
from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Engine, Plan
from backends.scrape import KV_USAGE, PREEMPTIONS, read
from backends.types import Timeouts
from bench.children import children
from bench.demo import HOST, free_port
from bench.load.plan import Lengths
from bench.load.sample import Sample
from bench.load.session import Settings, run_load
from bench.stack import NotReady, Stack
from bench.tuning.evidence import with_flags
from bench.tuning.objective import Window
from bench.tuning.space import Flags
from bench.tuning.traffic import ALL, LONG, SHORT, Traffic

_LOOK_EVERY = 0.25
_LINES = 5
_LIMIT = 120.0


@dataclass(frozen=True, slots=True)
class Managed:
    """`engine` is the plan's; all its flags but the searched ones stay."""

    engine: Engine
    settings: ManagedSettings
    traffic: Traffic
    folder: Path
    ready_within: float

    @asynccontextmanager
    async def started(self, flags: Flags | None) -> AsyncIterator["ManagedMeasuring"]:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        engine = replace(with_flags(self.engine, flags), port=free_port(), classes=())
        lines: list[str] = []
        async with (
            ManagedNode(Plan((engine,)), self.settings, lambda _, line: lines.append(line)) as node,
            aiohttp.ClientSession() as http,
            children(folder) as gateways,
        ):
            port = free_port()
            config = folder / "gateway.yaml"
            config.write_text(yaml.safe_dump(self._gateway(node, port)))
            gateway = await gateways.start(
                "gateway",
                *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)),
            )
            stack = Stack(gateway, f"http://{HOST}:{port}", node, http, folder / "requests.jsonl")
            try:
                await self._until_ready(stack, engine.name)
            except NotReady as refused:
                said = "; ".join(lines[-_LINES:])
                yield ManagedMeasuring(self.traffic, stack, engine, refused=f"{refused}: {said}")
            else:
                yield ManagedMeasuring(self.traffic, stack, engine)

    def _gateway(self, node: ManagedNode, port: int) -> dict[str, Any]:
        traffic = self.traffic
        return {
            "port": port,
            "workers": 1,
            # The same for every candidate; to time both for each takes longer than a window.
            "tokenizer": {"channel": "ids"},
            "classes": {
                SHORT: {"max_prompt_tokens": traffic.bound, "ttft_target": traffic.target},
                LONG: {"ttft_target": 5.0},
            },
            "backends": {
                spec.name: {"url": spec.url, "limit": spec.limit} for spec in node.specs()
            },
        }

    async def _until_ready(self, stack: Stack, name: str) -> None:
        """Wait for the warm gate, as long as the engine's first process lives. Raises NotReady."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.ready_within
        while True:
            try:
                await stack.until_ready(within=1.0)
                return
            except NotReady:
                if stack.node.engines[name].starts > 1:
                    raise NotReady("the engine ended by itself") from None
                if loop.time() >= give_up:
                    raise


@dataclass(slots=True)
class ManagedMeasuring:
    """One candidate's engine behind its gateway."""

    traffic: Traffic
    stack: Stack
    engine: Engine
    refused: str = ""
    _preemptions: int = field(default=0, init=False)

    async def window(self, number: int, repeat: int = 0) -> Window:
        if self.refused:
            return Window(0, 0, (), 0, 0.0, refused=self.refused)
        settings = Settings(
            url=self.stack.url,
            timeouts=Timeouts(connect=10.0, first_token=_LIMIT, token_gap=_LIMIT, total=_LIMIT),
            lengths=Lengths(short=self.traffic.bound),
            seed=hash((self.traffic.seed, number, repeat)),
        )
        usage: list[float] = []
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(usage), name="kv usage")
            quiet = Console(stderr=True, quiet=True)
            outcome = await run_load(settings, self.traffic.jobs(number), quiet)
            looking.cancel()
        before, self._preemptions = self._preemptions, await self._preempted()
        preempted = self._preemptions - before
        return window_of(outcome.samples, self.traffic, max(usage, default=0.0), preempted)

    async def _look(self, usage: list[float]) -> None:
        while True:
            usage.append(max((await self._metrics()).get(KV_USAGE, ()), default=0.0))
            await asyncio.sleep(_LOOK_EVERY)

    async def _preempted(self) -> int:
        return int(sum((await self._metrics()).get(PREEMPTIONS, ())))

    async def _metrics(self) -> dict[str, list[float]]:
        """Empty where the engine does not answer: its requests will tell of that."""
        with suppress(aiohttp.ClientError, TimeoutError):
            url = f"http://{HOST}:{self.engine.port}/metrics"
            async with self.stack.http.get(url) as answer:
                return read(await answer.read())
        return {}


def window_of(
    samples: Sequence[Sample], traffic: Traffic, kv_usage: float, preemptions: int
) -> Window:
    """What a run of the load says of the class that is tuned for."""
    mine = [s for s in samples if traffic.service_class in (ALL, s.service_class) and not s.error]
    ttfts = tuple(round(s.ttft, 6) for s in mine if s.ttft is not None)
    span = max(s.ended for s in samples) - min(s.intended for s in samples) if samples else 0.0
    return Window(
        requests=len(samples),
        failed=sum(bool(sample.error) for sample in samples),
        ttfts=ttfts,
        good=sum(ttft <= traffic.target for ttft in ttfts),
        seconds=span,
        kv_usage=kv_usage,
        preemptions=preemptions,
    )
