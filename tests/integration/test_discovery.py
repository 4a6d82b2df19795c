"""Engines that register themselves take traffic, and leave it, while the gateway runs."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bench.demo import free_port
from tests.integration.conftest import StartEngine
from tests.integration.parts import MODEL, ended_at_last
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


class Gateway:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ask(self, **more: Any) -> tuple[int, str, str]:
        """Status, backend and body of an answer."""
        url = f"{self._url}/v1/chat/completions"
        async with self._session.post(url, json=BODY | more) as answer:
            name = answer.headers.get("x-forebay-backend", "")
            return answer.status, name, await answer.text()

    async def until_backends(self, **states: str) -> None:
        """Wait until exactly these backends are there, in these states."""
        async with asyncio.timeout(40):
            while await self._states() != states:  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.02)

    async def _states(self) -> dict[str, str] | None:
        try:
            async with self._session.get(f"{self._url}/ready") as answer:
                said = await answer.json()
        except aiohttp.ClientConnectionError:
            return None
        return {name: backend["state"] for name, backend in said["backends"].items()}


@asynccontextmanager
async def gateway(folder: Path, cache: Path, redis: str, workers: int) -> AsyncIterator[Gateway]:
    port = free_port()
    settings = {
        "port": port,
        "workers": workers,
        "warm": {"requests": 2},
        "expose_timings": True,
        "discovery": {"joined": {"kind": "redis", "redis": redis}},
    }
    config = folder / "forebay.yaml"
    config.write_text(yaml.safe_dump(settings))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)),
        env=os.environ | {"FOREBAY_CACHE": str(cache)},
    )
    async with ended_at_last(process), aiohttp.ClientSession() as session:
        yield Gateway(f"http://127.0.0.1:{port}", session)


@pytest.mark.parametrize("workers", [1, 2])
async def test_engines_come_and_go_while_requests_run(
    start_engine: StartEngine, tmp_path: Path, cache_dir: Path, workers: int
) -> None:
    one, two = await start_engine("--step-ms", "20"), await start_engine("--step-ms", "20")
    with redis_server(tmp_path) as redis:

        def register(name: str, url: str) -> None:
            redis.set(f"forebay:registered:{name}", json.dumps({"url": url}))

        async with gateway(tmp_path, cache_dir, url_of(redis), workers) as running:
            await running.until_backends()
            status, _, text = await running.ask()
            assert (status, json.loads(text)["error"]["code"]) == (503, "no_backend")

            register("one", one.url)
            await running.until_backends(one="ready")
            assert (await running.ask())[:2] == (200, "one")

            register("two", two.url)
            await running.until_backends(one="ready", two="ready")
            streams = [
                asyncio.get_running_loop().create_task(
                    running.ask(stream=True, max_tokens=60, ignore_eos=True)
                )
                for _ in range(6)
            ]
            await asyncio.sleep(0.3)
            redis.delete("forebay:registered:one")
            await running.until_backends(two="ready")
            answers = await asyncio.gather(*streams)
            assert {name for _, name, _ in answers} == {"one", "two"}
            assert all(text.endswith("data: [DONE]\n\n") for _, _, text in answers), (
                "an engine that leaves finishes what it has"
            )
            assert (await running.ask())[:2] == (200, "two")

            seen = (await one.counts())["vllm:generation_tokens_total"]
            register("two", one.url)  # the same name, another server
            await running.until_backends(two="draining")
            await running.until_backends(two="ready")
            assert (await running.ask())[:2] == (200, "two")
            assert (await one.counts())["vllm:generation_tokens_total"] > seen
