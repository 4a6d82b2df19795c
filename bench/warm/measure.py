"""One engine is started twice a round: asked directly as soon as it says that it is healthy, and
behind the gateway as soon as that says that it is ready."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from backends.client import Client
from backends.types import BackendSpec
from bench.children import Children, children
from bench.demo import HOST, free_port
from bench.first_token import first_token
from bench.scenarios import Report

WORDS = 256
WARM_AFTER = 10
"""Requests after which a directly asked engine counts as warm: its floor."""
READY_WITHIN = 300.0


class WarmFailed(Exception):
    """The measurement cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How one is started; `{port}` in the command is replaced."""

    command: tuple[str, ...]
    model: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds to the first token: `floor` and `gated_later` of later requests, directly and through
    the gateway. Tokens are what the warm-up had the engine prefill."""

    cold: float
    floor: float
    gated: float
    gated_later: float
    until_ready: float
    warm_up_tokens: float


async def measure(engine: Engine, rounds: int, folder: Path) -> Report:
    """Raises WarmFailed, ChildEnded, RequestFailed and BackendError."""
    done = []
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        cold, floor = await _cold(engine, place)
        done.append(await _gated(engine, place, cold, floor))
    cold = median(each.cold for each in done)
    gated = median(each.gated for each in done)
    return Report(
        summary={
            "cold_over_gated": round(cold / gated, 2),
            "cold_ms": round(cold * 1e3, 1),
            "gated_ms": round(gated * 1e3, 1),
            "gated_later_ms": round(median(each.gated_later for each in done) * 1e3, 1),
            "warm_floor_ms": round(median(each.floor for each in done) * 1e3, 1),
            "warm_up_prompt_tokens": median(each.warm_up_tokens for each in done),
            "rounds": rounds,
        },
        detail={
            name: [round(getattr(each, name), 4) for each in done]
            for name in ("cold", "floor", "gated", "gated_later", "until_ready")
        },
    )


async def _cold(engine: Engine, place: Path) -> tuple[float, float]:
    """The first request that an engine ever gets, and a later one."""
    async with children(place) as started, aiohttp.ClientSession() as http:
        url = await _start(started, engine, http)
        async with _client(url) as client:
            cold = await first_token(client, engine.model, WORDS)
            return cold, await _later(client, engine)


async def _gated(engine: Engine, place: Path, cold: float, floor: float) -> Round:
    """The first request that a user sends through the gateway."""
    async with children(place) as started, aiohttp.ClientSession() as http:
        backend = await _start(started, engine, http)
        port = free_port()
        began = time.monotonic()
        await started.start(
            "gateway",
            *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(port)),
            *("--backend", f"short={backend}", "--workers", "1"),
        )
        url = f"http://{HOST}:{port}"
        await _until_ok(http, f"{url}/ready")
        until_ready = time.monotonic() - began
        tokens = await _warm_up_tokens(http, url)
        async with _client(url) as client:
            gated = await first_token(client, engine.model, WORDS)
            later = await _later(client, engine)
    return Round(cold, floor, gated, later, until_ready, tokens)


async def _later(client: Client, engine: Engine) -> float:
    """What a request takes after a few more."""
    for _ in range(WARM_AFTER):
        await first_token(client, engine.model, WORDS)
    return median([await first_token(client, engine.model, WORDS) for _ in range(5)])


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[Client]:
    client = Client(BackendSpec("measured", url))
    try:
        yield client
    finally:
        await client.close()


async def _start(started: Children, engine: Engine, http: aiohttp.ClientSession) -> str:
    port = free_port()
    command = [part.format(port=port) for part in engine.command]
    settings = [f"{name}={value}" for name, value in engine.settings.items()]
    await started.start("engine", "env", *settings, *command)
    url = f"http://{HOST}:{port}"
    await _until_ok(http, f"{url}/health")
    return url


async def _until_ok(http: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        with suppress(aiohttp.ClientConnectionError):
            async with http.get(url) as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.1)
    raise WarmFailed(f"{url} was not ready after {READY_WITHIN:.0f} s")


async def _warm_up_tokens(http: aiohttp.ClientSession, url: str) -> float:
    async with http.get(f"{url}/metrics") as answer:
        page = await answer.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "forebay_warm_prompt_tokens_total"
    )
