"""`python -m bench overhead`: what Forebay itself costs, beside peers and none in the same run."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench.children import ChildEnded
from bench.overhead.measure import Found, OverheadFailed, Plan, measure
from bench.overhead.summary import report
from bench.peers.commands import PEERS, is_installed
from bench.scenarios import Report
from bench.simulate import show

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
    with tempfile.TemporaryDirectory(prefix="forebay-overhead-") as folder:
        try:
            found = asyncio.run(_until_stopped(measure(plan, Path(folder))))
        except ChildEnded as ended:
            raise SystemExit(f"overhead: {ended}; the end of its log:\n{ended.log}") from None
        except OverheadFailed as failed:
            raise SystemExit(f"overhead: {failed}") from None
        except asyncio.CancelledError:
            raise SystemExit("overhead: stopped") from None
    done = report(found, not_run=[peer for peer in named if peer not in plan.peers])
    _table(done, ("direct", *plan.peers))
    show(done, json)


async def _until_stopped(work: Coroutine[Any, Any, Found]) -> Found:
    """Do the work; SIGTERM ends it as Ctrl-C does, so that no gateway is left behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


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
