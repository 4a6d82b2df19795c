"""The parts of an integration test: engines as processes, a gateway in this process."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import openai

from gateway.app import App
from gateway.config import Config

MODEL = "forebay-demo"


@dataclass
class Engine:
    """A simulated engine that can be killed, and told to fail."""

    process: asyncio.subprocess.Process
    url: str

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    async def fail(self, mode: str) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/fake/fail", json={"mode": mode}) as answer,
        ):
            answer.raise_for_status()

    async def counts(self) -> dict[str, float]:
        """The engine's own metrics, by name, without labels."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name.split("{")[0]: float(value) for name, value in pairs}


@asynccontextmanager
async def ended_at_last(
    process: asyncio.subprocess.Process, *, status: int = 0, within: float = 60
) -> AsyncIterator[None]:
    """At the end the process is told to end, has so many seconds for it, and leaves this status.

    One that does not end is killed: it shall fail its own test, and none after it.
    """
    try:
        yield
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(within):
            assert await process.wait() == status
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def running_engine(*options: str, port: int = 0) -> AsyncIterator[Engine]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.fake_vllm", "--port", str(port), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        yield Engine(process, json.loads(line)["url"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass
class Gateway:
    """A running gateway and its official client."""

    app: App
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=0, **options
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def ready(self) -> dict[str, Any]:
        return json.loads((await self.get("/ready"))[1])  # type: ignore[no-any-return]

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over all samples of a metric that have these labels."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        total = 0.0
        for line in (await self.get("/metrics"))[1].splitlines():
            head, _, value = line.rpartition(" ")
            metric, _, rest = head.partition("{")
            if metric == name and wanted <= set(rest.rstrip("}").split(",")):
                total += float(value)
        return total

    def in_flight(self) -> int:
        return sum(backend.in_flight for backend in self.app.driver.snapshot().backends)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait for a condition that other processes bring about."""
        async with asyncio.timeout(20):
            while not (held if isinstance(held := condition(), bool) else await held):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running_gateway(
    cache_dir: Path, *, wait: bool = True, **settings: Any
) -> AsyncIterator[Gateway]:
    """A gateway that is ready, unless told not to `wait`, and that leaves nothing behind."""
    own = {
        "port": 0,
        "tokenizer": {"cache_dir": cache_dir, "channel": "ids"},
        "warm": {"requests": 2},
        "expose_timings": True,
        # Another test may have had a Redis at the same port.
        "settings_snapshot": cache_dir / f"settings-{uuid.uuid4().hex}.json",
    }
    app = App(Config.model_validate(own | settings))
    try:
        gateway = Gateway(app, await app.start())
        if wait:
            await gateway.until(app.status.all_ready)
        yield gateway
    finally:
        await app.stop()
    assert app.tasks.failed == 0
    assert len(app.tasks) == 0
    assert gateway.in_flight() == 0


@dataclass
class Command:
    """A running `forebay serve`."""

    process: asyncio.subprocess.Process
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[str]:
        """The process ids of what it has started itself."""
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()


@asynccontextmanager
async def running_command(cache_dir: Path, engine: Engine, *options: str) -> AsyncIterator[Command]:
    """`forebay serve` in front of an engine, when a chat would go there by ids."""
    cache_dir.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    quick = cache_dir / "quick.yaml"
    quick.write_text("tokenizer: {channel: ids}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway.cli", "serve", "--port", "0", "--backend", engine.url),
        *("--config", str(quick), *options),
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"FOREBAY_CACHE": str(cache_dir)},
    )
    try:
        assert process.stderr is not None
        port = 0
        async for line in process.stderr:
            if b"listening on" in line:
                port = int(line.rsplit(b":", 1)[1])
            if b"chat by ids" in line and port:
                break
        yield Command(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # To its end, which is when the last child that inherited it has ended: else the loop may be
        # closed before it has closed its own end.
        assert process.stderr is not None
        async with asyncio.timeout(20):
            await process.stderr.read()
