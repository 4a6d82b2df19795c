"""`python -m bench chaos`: every request ends once, whatever happens to the engines."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bench.chaos.measure import Chaos, measure
from bench.children import ChildEnded
from bench.simulate import show
from bench.stack import NotReady

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
    with tempfile.TemporaryDirectory(prefix="forebay-chaos-") as folder:
        try:
            done = asyncio.run(measure(plan, Path(folder)))
        except ChildEnded as ended:
            raise SystemExit(f"chaos: {ended}; the end of its log:\n{ended.log}") from None
        except NotReady as failed:
            raise SystemExit(f"chaos: {failed}") from None
    show(done, json)
    for what in NONE_OF_THESE:
        if done.summary[what]:
            typer.echo(f"chaos: {what} is {done.summary[what]:g} and must be 0", err=True)
    if any(done.summary[what] for what in NONE_OF_THESE):
        raise typer.Exit(1)
