"""`python -m bench overhead`: what Forebay itself costs, beside peers and none in the same run."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.overhead.measure import Plan, measure
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


def overhead(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    peers: Annotated[str, typer.Option(help="Which gateways, separated by commas.")] = _ALL,
    rounds: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="Of each load, warm-up included.", min=0.2)] = 3.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="One short round of Forebay and the plain design.")
    ] = False,
) -> None:
    """Measure added TTFT, CPU per request and per chunk, throughput and memory of gateways."""
    named = tuple(peers.split(","))
    if unknown := set(named) - set(PEERS):
        raise typer.BadParameter(f"no such peer: {', '.join(unknown)}", param_hint="--peers")
    plan = Plan(tuple(filter(is_installed, named)), rounds, seconds)
    if quick:
        plan = Plan(("forebay", "aiohttp"), rounds=1, seconds=min(seconds, 1.0))
    with measuring("overhead", OverheadFailed) as folder:
        found = asyncio.run(until_stopped(measure(plan, folder)))
    done = report(found, not_run=[peer for peer in named if peer not in plan.peers])
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
