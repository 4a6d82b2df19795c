"""The vLLM set-ups that are compared, and how each is started with Forebay in front of it.

Not here: how vLLM's environment is made (bench/vllm_env) and how processes end
(bench/children.py).
"""

import asyncio
import importlib.util
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from bench.children import Children
from bench.demo import HOST, free_port
from bench.vllm_env import serve
from bench.vllm_env.layout import Layout

MAX_MODEL_LEN: Final = 32_768
GATEWAY_READY_WITHIN: Final = 180.0
"""Seconds: it proves its tokenizer against the backend's first, and times the channels."""

_RUST: Final = "FOREBAY_VLLM_RS"
# `vllm serve`, which alone starts the Rust frontend, asks for a distribution of that name.
_METADATA: Final = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


class TtftFailed(Exception):
    """The measurement cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A way to run vLLM. `module`, if any, is lent to vLLM's environment from our own.

    `rust` needs the frontend's binary, which only vLLM's GPU wheel has: $FOREBAY_VLLM_RS names it.
    """

    name: str
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    module: str = ""
    rust: bool = False

    def missing(self, layout: Layout) -> str:
        """Why it can't run here; empty when it can."""
        if self.rust and not Path(os.environ.get(_RUST, "")).is_file():
            return f"${_RUST} does not name vLLM's Rust frontend (docs/performance/ttft.md)"
        if self.module and importlib.util.find_spec(self.module) is None:
            return f"there is no {self.module} to lend to vLLM"
        return ""


SETUPS: Final = (
    SetUp("default"),
    SetUp("renderers2", arguments=("--renderer-num-workers", "2")),
    SetUp("fastokens", settings={"VLLM_USE_FASTOKENS": "1"}, module="fastokens"),
    SetUp("rust", settings={"VLLM_USE_RUST_FRONTEND": "1"}, rust=True),
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
    if setup.module:
        settings |= {"PYTHONPATH": str(_lent(layout, setup.module))}
    if setup.rust:
        settings |= _rust_settings(layout)
        arguments = _served(arguments)
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


def _lent(layout: Layout, module: str) -> Path:
    """A folder with just this package of ours, which must need no other one."""
    folder = layout.cache / f"lent-{module}"
    folder.mkdir(parents=True, exist_ok=True)
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for source in (package, *package.parent.glob(f"{module}-*.dist-info")):
        link = folder / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(source)
    return folder


def _rust_settings(layout: Layout) -> dict[str, str]:
    """Where the binary is, and a distribution named `vllm` for its launcher to find."""
    folder = layout.cache / "vllm-name"
    found = folder / "vllm-0.32.0.dist-info"
    found.mkdir(parents=True, exist_ok=True)
    (found / "METADATA").write_text(_METADATA)
    return {"VLLM_RUST_FRONTEND_PATH": os.environ[_RUST], "PYTHONPATH": str(folder)}


def _served(arguments: list[str]) -> list[str]:
    """The same server, started as `vllm serve` does."""
    python, _, _, *options = arguments
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", *options]


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
