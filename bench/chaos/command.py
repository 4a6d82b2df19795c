"""`python -m bench chaos` and `leave`: every request ends once, whatever happens to the engines,
and nothing is left in an engine of a client that left."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from backends.plans.model import Flag
from bench.chaos import fleet
from bench.chaos.leaving import PHASES, measure_leaving
from bench.chaos.measure import Chaos, measure
from bench.idle.command import FAILURES, given, real, simulated
from bench.idle.measure import Idle
from bench.simulate import show
from bench.stack import NotReady
from bench.stopping import measuring, until_stopped
from bench.vllm_env.build import BuildError

SOON = 1.0
"""Seconds within which an engine must have nothing left of clients that left."""
ENGINES, REAL_ENGINES = 4, 2
SIMULATED, REAL = Chaos(), Chaos(requests=1500, concurrency=16, every=15.0)
"""A vLLM that was killed is away for most of a minute, and two of them share the cores."""
NONE_OF_THESE = (
    "hung",
    "wrong",
    "ended_twice",
    "unrecorded",
    "in_flight_end",
    "engines_in_flight_end",
    "fd_growth",
    "task_growth",
)


def chaos(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    requests: Annotated[
        int | None,
        typer.Option(help=f"Default: {SIMULATED.requests}; {REAL.requests} with --real.", min=1),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help=f"{SIMULATED.concurrency}; {REAL.concurrency}.", min=1)
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds between two troubles: {SIMULATED.every:g}; {REAL.every:g}.", min=0.05
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which trouble meets which engine.")] = 1,
    with_vllm: Annotated[
        bool, typer.Option("--real", help="Two real vLLMs on the CPU, killed and frozen.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="Refused: see `leave`.", show_default=False)
    ] = None,
) -> None:
    """Send requests while engines are killed, frozen, hang, refuse and reset; count what is left.

    Ends with status 1 when a request hung, ended twice or not at all, was answered with what the
    documentation does not have, or when anything is left behind.
    """
    if backend is not None:
        raise typer.BadParameter(
            "chaos kills and freezes engines, and does so to none that it did not start: "
            "--real starts its own, and `leave --backend` has clients leave a given one"
        )
    usual = REAL if with_vllm else SIMULATED
    plan = replace(
        usual,
        requests=requests or usual.requests,
        concurrency=concurrency or usual.concurrency,
        every=every or usual.every,
        seed=seed,
    )
    with measuring("chaos", BuildError, NotReady) as folder:
        engines = fleet.real(REAL_ENGINES) if with_vllm else fleet.simulated(ENGINES)
        done = asyncio.run(until_stopped(measure(plan, engines, folder)))
    show(done, json)
    for what in NONE_OF_THESE:
        if done.summary[what]:
            typer.echo(f"chaos: {what} is {done.summary[what]:g} and must be 0", err=True)
    if any(done.summary[what] for what in NONE_OF_THESE):
        raise typer.Exit(1)


def slow_engine() -> Idle:
    """A simulated engine whose answers last longer than any phase."""
    plan = simulated((), 1)
    step = Flag("step-ms", 10, "")
    return replace(plan, engine=replace(plan.engine, flags=(*plan.engine.flags, step)))


def leave(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    times: Annotated[int, typer.Option(help="In each of the four phases.", min=1)] = 200,
    with_vllm: Annotated[
        bool, typer.Option("--real/--simulated", help="A vLLM on the CPU, or a simulated engine.")
    ] = True,
    backend: Annotated[
        str | None, typer.Option(help="A vLLM that runs already, and that nobody else asks.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of --backend; default: the first one served.")
    ] = None,
) -> None:
    """Let clients leave while they wait, connect, prefill and decode; ask vLLM what it has left.

    Ends with status 1 when that was not nothing within a second, each time.
    """
    if not with_vllm and backend is not None:
        raise typer.BadParameter("say --backend URL or --simulated, not both")
    with measuring("leave", *FAILURES) as folder:
        if backend is not None:
            plan = asyncio.run(given(backend, model, (), 1))
        else:
            plan = real((), 1) if with_vllm else slow_engine()
        done = asyncio.run(until_stopped(measure_leaving(plan, times, folder)))
    show(done, json)
    if any(done.summary[f"{phase}_worst_s"] > SOON for phase in PHASES):
        raise typer.Exit(1)
