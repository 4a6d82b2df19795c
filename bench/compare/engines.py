"""The engines that all gateways stand before in turn: simulated, given, or a real vLLM here."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from bench.children import Children
from bench.demo import HOST, free_port
from bench.fake_vllm import TOKENIZER
from bench.vllm_env import serve
from bench.vllm_env.build import build
from bench.vllm_env.layout import locate

MODEL = "forebay-demo"


class CompareFailed(Exception):
    """The comparison cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Addresses (host:port) of servers with one model, and the directory of its tokenizer.

    The tokenizer is None where nothing is known of it: then lengths are those of ours.
    """

    upstreams: tuple[str, ...]
    model: str
    tokenizer: Path | None

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"http://{upstream}" for upstream in self.upstreams)


WITHOUT_PREFIX_CACHE = ("--no-enable-prefix-caching",)
"""So that no run helps the next one."""


async def simulated(
    started: Children, count: int, preset: str, flags: tuple[str, ...] = WITHOUT_PREFIX_CACHE
) -> Engines:
    """So many of bench.fake_vllm, each with these flags."""
    starting = [
        await started.start(
            f"engine-{preset}-{number}",
            *(sys.executable, "-m", "bench.fake_vllm", "--port", "0", "--preset", preset, *flags),
            announces=True,
        )
        for number in range(count)
    ]
    ports = []
    for child in starting:
        line = await child.first_line()
        if not line:
            await asyncio.Event().wait()  # It ended; its watcher is about to say so.
        ports.append(orjson.loads(line)["port"])
    return Engines(tuple(f"{HOST}:{port}" for port in ports), MODEL, TOKENIZER)


async def given(urls: Sequence[str], model: str | None, tokenizer: Path | None) -> Engines:
    """Servers that run already. Raises CompareFailed, and aiohttp.ClientError."""
    upstreams = []
    for url in urls:
        scheme, _, rest = url.rstrip("/").partition("://")
        if scheme != "http" or "/" in rest:
            raise CompareFailed(f"not http://host:port: {url}")
        upstreams.append(rest)
    async with aiohttp.ClientSession() as http, http.get(f"{urls[0]}/v1/models") as answer:
        cards = (await answer.json())["data"]
    card = next((card for card in cards if model in (None, card["id"])), None)
    if card is None:
        raise CompareFailed(f"{urls[0]} does not serve {model}")
    root = Path(card.get("root") or "")
    known = root if (root / "tokenizer.json").exists() else None
    return Engines(tuple(upstreams), card["id"], tokenizer or known)


async def real(started: Children, tell: Callable[[str], None]) -> Engines:
    """A vLLM on the CPU with the tiny model; its environment is built if there is none.

    Raises BuildError, and CompareFailed when it isn't ready in time.
    """
    layout = locate()
    await asyncio.to_thread(build, layout, tell)
    port = free_port()
    settings = [f"{name}={value}" for name, value in serve.settings().items()]
    arguments = serve.command(layout, layout.tiny, port, max_model_len=32_768)
    await started.start("vllm", "env", *settings, *arguments)
    await until_ok(f"http://{HOST}:{port}/health", serve.READY_WITHIN)
    return Engines((f"{HOST}:{port}",), layout.tiny.name, layout.tiny)


async def until_ok(url: str, within: float, body: bytes | None = None) -> None:
    """Wait for a 200, of a POST when there is a body. Raises CompareFailed."""
    said = "no connection"
    headers = {"content-type": "application/json"}
    method = "GET" if body is None else "POST"
    deadline = time.monotonic() + within
    async with aiohttp.ClientSession(headers=headers) as http:
        while time.monotonic() < deadline:
            try:
                async with http.request(method, url, data=body) as response:
                    if response.status == 200:
                        return
                    said = f"{response.status}: {(await response.text())[:300]}"
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise CompareFailed(f"{url} was not ready after {within:.0f} s: {said}")
