"""Three gateways of the command line before simulated engines, with a Redis that can be killed."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bench.children import Child, Children, children
from bench.demo import HOST, find_redis, free_port

READY_WITHIN = 90.0
GATEWAYS = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """`engines` has the flags of each simulated engine by the backend's name, `settings` what else
    stands in the gateways' file."""

    engines: dict[str, Sequence[str]]
    settings: dict[str, Any]


@dataclass(slots=True)
class Fleet:
    """What runs. `urls` are the gateways', `engines` the engines'."""

    started: Children
    folder: Path
    redis_port: int
    engines: dict[str, str]
    urls: list[str]
    gateways: list[Child]
    redis_child: Child
    http: aiohttp.ClientSession
    redis: Redis

    async def ready(self, gateway: int = 0) -> dict[str, Any]:
        async with self.http.get(f"{self.urls[gateway]}/ready") as answer:
            return await answer.json(content_type=None)  # type: ignore[no-any-return]

    async def start_redis(self, name: str) -> None:
        """Start Redis (again), empty."""
        self.redis_child = await _redis(self.started, self.redis_port, name)
        await _until_answers(self.redis)


@asynccontextmanager
async def fleet(setup: Setup) -> AsyncIterator[Fleet]:
    """Everything, ready for requests; nothing is left of it after the block."""
    with tempfile.TemporaryDirectory(prefix="forebay-control-") as logs:
        folder, port = Path(logs), free_port()
        redis = Redis(host=HOST, port=port, decode_responses=True)
        # A Redis or a gateway that is killed is part of the measurement: nobody watches those.
        async with (
            children(folder) as started,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            redis,
        ):
            redis_child = await _redis(started, port, "redis")
            await _until_answers(redis)
            engines = await _engines(started, setup.engines)
            urls, gateways = [], []
            for number in range(GATEWAYS):
                url, gateway = await _gateway(started, folder, number, (setup, engines, port))
                urls.append(url)
                gateways.append(gateway)
            running = Fleet(
                *(started, folder, port, engines, urls, gateways, redis_child, http, redis)
            )
            await _until_ready(running)
            yield running


async def _redis(started: Children, port: int, name: str) -> Child:
    options = ("--bind", HOST, "--port", str(port), "--save", "")
    return await started.start(name, find_redis().server, *options, may_end=True)


async def _engines(started: Children, wanted: dict[str, Sequence[str]]) -> dict[str, str]:
    command = (sys.executable, "-m", "bench.fake_vllm", "--port", "0")
    starting = {
        name: await started.start(f"engine-{name}", *command, *flags, announces=True)
        for name, flags in wanted.items()
    }
    return {name: json.loads(await child.first_line())["url"] for name, child in starting.items()}


async def _gateway(
    started: Children, folder: Path, number: int, told: tuple[Setup, dict[str, str], int]
) -> tuple[str, Child]:
    setup, engines, redis_port = told
    port = free_port()
    backends = setup.settings.get("backends", {})
    document: dict[str, Any] = setup.settings | {
        "host": HOST,
        "port": port,
        "workers": 1,
        "redis": f"redis://{HOST}:{redis_port}",
        "settings_snapshot": str(folder / f"settings-{number}.json"),
        "backends": {name: {"url": url} | backends.get(name, {}) for name, url in engines.items()},
    }
    file = folder / f"gateway-{number}.yaml"
    file.write_text(yaml.safe_dump(document))
    command = (sys.executable, "-m", "gateway.cli", "serve", "--config", str(file))
    child = await started.start(f"gateway-{number}", *command, may_end=True)
    return f"http://{HOST}:{port}", child


async def _until_answers(redis: Redis) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await redis.ping()
            except (RedisError, OSError):
                await asyncio.sleep(0.02)
            else:
                return


async def _until_ready(running: Fleet) -> None:
    async with asyncio.timeout(READY_WITHIN):
        for number in range(len(running.urls)):
            while True:
                try:
                    said = await running.ready(number)
                except aiohttp.ClientConnectionError:
                    said = {}
                if said.get("all_ready") and said.get("redis_up"):
                    break
                await asyncio.sleep(0.05)
