"""`python -m bench warm`: the first request of a cold engine, and of one behind the warm gate."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from backends.errors import BackendError
from bench.demo import MODEL
from bench.first_token import RequestFailed
from bench.simulate import show
from bench.stopping import measuring, until_stopped
from bench.vllm_env import serve
from bench.vllm_env.build import BuildError, build
from bench.vllm_env.layout import locate
from bench.warm.measure import Engine, WarmFailed, measure

MAX_MODEL_LEN = 8192
COLD_MS = 1200
"""What the source measured for a first request."""


def simulated() -> Engine:
    """An engine whose first step takes longer, as told."""
    return Engine(
        (sys.executable, "-m", "bench.fake_vllm", "--port", "{port}", "--cold-ms", str(COLD_MS)),
        MODEL,
        {},
    )


def real() -> Engine:
    """A real vLLM on the CPU with the tiny model. Its environment is built if there is none."""
    layout = locate()
    build(layout, typer.echo)
    command = serve.command(layout, layout.tiny, 0, max_model_len=MAX_MODEL_LEN)
    command[command.index("--port") + 1] = "{port}"
    return Engine(tuple(command), layout.tiny.name, serve.settings())


def warm(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    rounds: Annotated[int, typer.Option(help="Each starts the engine twice.", min=1)] = 3,
    with_vllm: Annotated[
        bool, typer.Option("--real/--simulated", help="A vLLM on the CPU, or a simulated engine.")
    ] = True,
) -> None:
    """Compare the time to first token of the first request with and without the warm gate."""
    with measuring("warm", BuildError, WarmFailed, RequestFailed, BackendError) as folder:
        engine = real() if with_vllm else simulated()
        done = asyncio.run(until_stopped(measure(engine, rounds, folder)))
    show(done, json)
