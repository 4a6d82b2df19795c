"""`python -m bench idle`: time to first token after idleness, kept warm and not."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import aiohttp
import typer

from backends.errors import BackendError
from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Engine, Flag, Variable
from backends.types import BackendSpec
from bench.compare.engines import CompareFailed
from bench.compare.engines import given as given_engines
from bench.demo import MODEL, free_port
from bench.first_token import RequestFailed
from bench.idle.measure import WAYS, Idle, measure
from bench.simulate import show
from bench.stack import ENGINE, READY_WITHIN, NotReady
from bench.stopping import measuring, until_stopped
from bench.vllm_env import serve
from bench.vllm_env.build import BuildError, build
from bench.vllm_env.layout import locate

IDLES = "1,5,10,30,60"
COLD_AFTER, COLD_MS = 12, 400
"""The simulated engine cools after so many seconds, and then its first step takes longer."""
MAX_MODEL_LEN = 8192
FAILURES = (
    *(BuildError, NotReady, RequestFailed, BackendError),
    *(CompareFailed, aiohttp.ClientError),
)


def simulated(idles: tuple[float, ...], rounds: int) -> Idle:
    flags = (Flag("cold-after", COLD_AFTER, ""), Flag("cold-ms", COLD_MS, ""))
    return Idle(
        engine=Engine("engine", MODEL, (), 0, flags=flags),
        managed=ManagedSettings(command=ENGINE, grace=2.0),
        model=MODEL,
        idles=idles,
        rounds=rounds,
        together=True,
        ready_within=READY_WITHIN,
    )


def real(idles: tuple[float, ...], rounds: int) -> Idle:
    """A real vLLM on the CPU with the tiny model. Its environment is built if there is none."""
    layout = locate()
    build(layout, typer.echo)
    flags = (
        Flag("served-model-name", layout.tiny.name, ""),
        Flag("max-model-len", MAX_MODEL_LEN, ""),
        Flag("dtype", "float32", ""),
        Flag("enforce-eager", True, ""),
    )
    variables = tuple(Variable(name, value, "") for name, value in serve.settings().items())
    command = (str(layout.python), "-m", "vllm.entrypoints.openai.api_server")
    return Idle(
        engine=Engine("engine", str(layout.tiny), (), 0, flags=flags, environment=variables),
        managed=ManagedSettings(command=command),
        model=layout.tiny.name,
        idles=idles,
        rounds=rounds,
        together=False,
        ready_within=serve.READY_WITHIN,
    )


async def given(url: str, model: str | None, idles: tuple[float, ...], rounds: int) -> Idle:
    """A server that runs already. Raises CompareFailed and aiohttp.ClientError."""
    found = await given_engines((url,), model, None)
    return replace(
        simulated(idles, rounds),
        model=found.model,
        together=False,
        given=BackendSpec("engine", found.urls[0]),
    )


def idle(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    idles: Annotated[str, typer.Option(help="Seconds of idleness, with commas.")] = IDLES,
    rounds: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 2,
    with_vllm: Annotated[
        bool, typer.Option("--real", help="A real vLLM on the CPU; three times as long.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="A server that runs already, and that nobody else asks.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of --backend; default: the first one served.")
    ] = None,
) -> None:
    """Compare the time to first token after idleness with keep-warm requests and without."""
    try:
        seconds = tuple(float(part) for part in idles.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"numbers with commas between: {error}") from error
    if with_vllm and backend is not None:
        raise typer.BadParameter("say --backend URL or --real, not both")
    with measuring("idle", *FAILURES) as folder:
        if backend is not None:
            plan = asyncio.run(given(backend, model, seconds, rounds))
        else:
            plan = real(seconds, rounds) if with_vllm else simulated(seconds, rounds)
        engines = {way: replace(plan.engine, port=free_port()) for way in WAYS}
        done = asyncio.run(until_stopped(measure(plan, engines, folder)))
    show(done, json)
