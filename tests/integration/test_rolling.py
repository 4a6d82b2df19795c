"""A gateway is replaced by another one under load, and no request is lost.

The client is what a load balancer is: it asks `/ready` of both, sends each request to one that is
ready, keeps connections, and never tries twice.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bench.demo import free_port
from tests.integration.conftest import StartEngine
from tests.integration.parts import MODEL, ended_at_last

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 20,
    "ignore_eos": True,
    "stream": True,
}
CHECK_EVERY = 0.1
DELAY = 1.0


@dataclass
class Balancer:
    """Sends to whoever said last that it is ready."""

    session: aiohttp.ClientSession
    urls: list[str]
    ready: set[str] = field(default_factory=set)
    served: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    stopping: bool = False

    async def watch(self, url: str) -> None:
        while True:
            try:
                async with self.session.get(f"{url}/ready") as answer:
                    change = self.ready.add if answer.status == 200 else self.ready.discard
            except aiohttp.ClientError:
                change = self.ready.discard
            change(url)
            await asyncio.sleep(CHECK_EVERY)

    async def load(self) -> None:
        while not self.stopping:
            url = min(self.ready, key=lambda u: self.served[u])
            try:
                async with self.session.post(f"{url}/v1/chat/completions", json=BODY) as answer:
                    text = await answer.text()
            except aiohttp.ClientError as error:
                self.failures.append(f"{url}: {error!r}")
                continue
            if answer.status == 200 and text.endswith("data: [DONE]\n\n"):
                self.served[url] += 1
            else:
                self.failures.append(f"{url}: {answer.status} {text[-200:]}")

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(90):
            while not condition():  # noqa: ASYNC110 - other processes bring it about
                await asyncio.sleep(0.02)


@asynccontextmanager
async def gateway(
    folder: Path, cache: Path, backend: str, workers: int
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    port = free_port()
    config = folder / f"{port}.yaml"
    settings = {"warm": {"requests": 2}, "workers": workers, "drain_delay": DELAY, "port": port}
    # A limit that makes requests wait: what is queued must not be lost either.
    settings["backends"] = {"only": {"url": backend, "limit": 4}}
    config.write_text(yaml.safe_dump(settings))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)),
        *("--log-level", "WARNING"),
        env=os.environ | {"FOREBAY_CACHE": str(cache)},
    )
    async with ended_at_last(process):
        yield f"http://127.0.0.1:{port}", process


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_rolling_update_loses_no_request(
    start_engine: StartEngine, tmp_path: Path, cache_dir: Path, workers: int
) -> None:
    engine = await start_engine("--step-ms", "2")
    loop = asyncio.get_running_loop()
    async with (
        gateway(tmp_path, cache_dir, engine.url, workers) as (old, process),
        gateway(tmp_path, cache_dir, engine.url, workers) as (new, _),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        balancer = Balancer(session, [old, new])
        watching = [loop.create_task(balancer.watch(url)) for url in (old, new)]
        try:
            await _replace(balancer, old, new, process)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
    assert balancer.failures == []


async def _replace(
    balancer: Balancer, old: str, new: str, process: asyncio.subprocess.Process
) -> None:
    """End the old gateway under load; return when the new one has served for a while alone."""
    await balancer.until(lambda: len(balancer.ready) == 2)
    async with asyncio.TaskGroup() as loading:
        for _ in range(12):
            loading.create_task(balancer.load())
        await balancer.until(lambda: balancer.served[old] >= 30 and balancer.served[new] >= 30)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            assert await process.wait() == 0
        served = balancer.served[new]
        await balancer.until(lambda: balancer.served[new] >= served + 30)
        balancer.stopping = True
