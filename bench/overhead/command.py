"""`python -m bench overhead`: what Forebay itself costs, beside peers and none in the same run."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.overhead.measure import Plan, measure
from bench.overhead.source import FAILURES, Backend, Model, Real, chosen
from bench.overhead.stand import OverheadFailed
from bench.overhead.summary import report
from bench.peers.commands import PEERS, is_installed
from bench.scenarios import Report
from bench.simulate import show
from bench.stopping import measuring, until_stopped

FIGURES = (
    "requests_per_s",
    "cpu_us_per_request",
    "cpu_us_per_chunk",
    "added_ttft_ms_p50",
    "added_ttft_ms_p50_c64",
    "added_ttft_ms_p99_c64",
    "rss_mb",
    "core_share",
)
_ALL = ",".join(PEERS)
SECONDS, SLOWER = 3.0, 12.0
"""Of each load; before an engine that answers a few dozen requests a second it must be more."""


def overhead(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    peers: Annotated[str, typer.Option(help="Which gateways, separated by commas.")] = _ALL,
    rounds: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 5,
    seconds: Annotated[
        float | None,
        typer.Option(
            help=f"Of each load, warm-up included; default: {SECONDS:g}, of others' engines "
            f"{SLOWER:g}.",
            min=0.2,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One short round of Forebay and the plain design.")
    ] = False,
    backend: Backend = None,
    model: Model = None,
    real: Real = False,
) -> None:
    """Measure added TTFT, CPU per request and per chunk, throughput and memory of gateways."""
    source = chosen(backend, model, real=real)
    named = tuple(peers.split(","))
    if unknown := set(named) - set(PEERS):
        raise typer.BadParameter(f"no such peer: {', '.join(unknown)}", param_hint="--peers")
    long = seconds or (SECONDS if source.instant else SLOWER)
    plan = Plan(tuple(filter(is_installed, named)), rounds, long, source)
    if quick:
        short = min(long, 1.0) if source.instant else long
        plan = Plan(("forebay", "aiohttp"), rounds=1, seconds=short, source=source)
    with measuring("overhead", OverheadFailed, *FAILURES) as folder:
        found = asyncio.run(until_stopped(measure(plan, folder)))
    not_run = [peer for peer in named if peer not in plan.peers]
    done = report(found, not_run, source)
    _table(done, ("direct", *plan.peers))
    show(done, json)


def _table(done: Report, targets: tuple[str, ...]) -> None:
    table = Table("figure", *targets, title="cost of a gateway, medians")
    for figure in FIGURES:
        names = (f"{target.replace('-', '_')}_{figure}" for target in targets)
        values = (done.summary.get(name) for name in names)
        table.add_row(figure, *("" if value is None else f"{value:,.2f}" for value in values))
    console = Console()
    console.print(table)
    for peer in done.detail["not_run"]:
        console.print(f"{peer}: not run, it is not installed")
    for figure, why in done.detail["not_of_the_gateway"].items():
        console.print(f"{figure}: {why}")
