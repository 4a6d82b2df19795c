"""The vLLM set-ups that are compared, and how each is started with Forebay in front of it.

Not here: how vLLM's environment is made (scripts/vllm_env) and how processes end
(bench/children.py).
"""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from bench.children import Children
from bench.demo import HOST, free_port
from scripts.vllm_env import serve
from scripts.vllm_env.layout import Layout

MAX_MODEL_LEN: Final = 32_768
GATEWAY_READY_WITHIN: Final = 180.0
"""Seconds: it proves its tokenizer against the backend's first."""


class TtftFailed(Exception):
    """The measurement cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A way to run vLLM. `module`, if any, must be importable in vLLM's environment."""

    name: str
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    module: str = ""

    def missing(self, layout: Layout) -> str:
        """Why it can't run here; empty when it can."""
        if not self.module:
            return ""
        command = [str(layout.python), "-c", f"import {self.module}"]
        found = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return "" if found else f"vLLM's environment has no {self.module}"


SETUPS: Final = (
    SetUp("default"),
    SetUp("renderers2", arguments=("--renderer-num-workers", "2")),
    SetUp("fastokens", settings={"VLLM_USE_FASTOKENS": "1"}, module="fastokens"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The addresses of a vLLM and of the Forebay in front of it."""

    direct: str
    forebay: str
    model: str


async def start_pair(
    started: Children, http: aiohttp.ClientSession, layout: Layout, setup: SetUp
) -> Pair:
    """Start both and wait until they are ready. Raises TtftFailed when they are not in time."""
    port = free_port()
    settings = serve.settings() | setup.settings
    arguments = serve.command(layout, layout.tiny, port, max_model_len=MAX_MODEL_LEN)
    # Not through os.environ: the settings are this child's alone.
    variables = [f"{name}={value}" for name, value in settings.items()]
    await started.start("vllm", "env", *variables, *arguments, *setup.arguments)
    direct = f"http://{HOST}:{port}"
    await _until_ok(http, f"{direct}/health", serve.READY_WITHIN)
    port = free_port()
    await started.start(
        "gateway",
        *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(port)),
        *("--backend", direct, "--expose-timings"),
    )
    forebay = f"http://{HOST}:{port}"
    await _until_ok(http, f"{forebay}/ready", GATEWAY_READY_WITHIN)
    return Pair(direct, forebay, layout.tiny.name)


async def _until_ok(http: aiohttp.ClientSession, url: str, within: float) -> None:
    said = "no answer"
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            async with http.get(url) as response:
                if response.status == 200:
                    return
                said = await response.text()
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.2)
    raise TtftFailed(f"{url} was not ready after {within:.0f} s: {said}")
