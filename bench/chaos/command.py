"""`python -m bench chaos` and `leave`: every request ends once, whatever happens to the engines,
and nothing is left in an engine of a client that left."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from backends.plans.model import Flag
from bench.chaos.leaving import PHASES, measure_leaving
from bench.chaos.measure import Chaos, measure
from bench.idle.command import real, simulated
from bench.idle.measure import Idle
from bench.simulate import show
from bench.stack import NotReady
from bench.stopping import measuring, until_stopped
from bench.vllm_env.build import BuildError

SOON = 1.0
"""Seconds within which an engine must have nothing left of clients that left."""
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
    requests: Annotated[int, typer.Option(help="How many are sent.", min=1)] = 2000,
    concurrency: Annotated[int, typer.Option(help="At a time.", min=1)] = 64,
    every: Annotated[float, typer.Option(help="Seconds between two troubles.", min=0.05)] = 0.5,
    seed: Annotated[int, typer.Option(help="Decides which trouble meets which engine.")] = 1,
) -> None:
    """Send requests while engines are killed, frozen, hang, refuse and reset; count what is left.

    Ends with status 1 when a request hung, ended twice or not at all, was answered with what the
    documentation does not have, or when anything is left behind.
    """
    plan = Chaos(requests=requests, concurrency=concurrency, every=every, seed=seed)
    with measuring("chaos", NotReady) as folder:
        done = asyncio.run(until_stopped(measure(plan, folder)))
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
    without_vllm: Annotated[
        bool, typer.Option("--simulated", help="A simulated engine instead of the real vLLM.")
    ] = False,
) -> None:
    """Let clients leave while they wait, connect, prefill and decode; ask vLLM what it has left.

    Ends with status 1 when that was not nothing within a second, each time.
    """
    with measuring("leave", BuildError, NotReady) as folder:
        plan = slow_engine() if without_vllm else real((), 1)
        done = asyncio.run(until_stopped(measure_leaving(plan, times, folder)))
    show(done, json)
    if any(done.summary[f"{phase}_worst_s"] > SOON for phase in PHASES):
        raise typer.Exit(1)
