"""`python -m bench prefix`: hit share and TTFT with and without prefix affinity."""

import asyncio
import sys
from statistics import median
from typing import Annotated, Any

import aiohttp
import typer
import uvloop
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.children import ChildEnded
from bench.compare import flags
from bench.compare.engines import CompareFailed
from bench.compare.run import DIRECT
from bench.demo import until_stopped
from bench.environment import environment
from bench.load.discover import LoadFailed
from bench.load.output import write_json
from bench.peers.commands import is_installed
from bench.prefix.conversations import Talk, jobs, shareable
from bench.prefix.run import POLICIES, WITHOUT, Found, Plan, measure
from bench.vllm_env.build import BuildError

DEFAULT = ",".join(POLICIES)
_NEEDS = {DIRECT: "forebay", WITHOUT: "forebay"}


def prefix(
    policies: Annotated[str, typer.Option(help="Which, separated by commas.")] = DEFAULT,
    engines: Annotated[int, typer.Option(help="Simulated engines.", min=1)] = 4,
    kv_tokens: Annotated[int, typer.Option(help="Of each engine's cache.", min=32_768)] = 49_152,
    rate: Annotated[float, typer.Option(help="Requests per second.", min=0.1)] = 5.0,
    seconds: Annotated[float, typer.Option(help="Of each run.", min=1)] = 40.0,
    rounds: Annotated[int, typer.Option(min=1)] = 2,
    backend: flags.Backend = None,
    real: flags.Real = False,
    json: flags.Json = None,
) -> None:
    """Let conversations grow before engines whose caches hold only some of them."""
    wanted = policies.split(",")
    if unknown := set(wanted) - POLICIES.keys():
        raise typer.BadParameter(f"no such policy: {', '.join(unknown)}", param_hint="--policies")
    runs = tuple(name for name in wanted if is_installed(_NEEDS.get(name, name)))
    talk, urls = Talk(rate, seconds), tuple(backend or ())
    plan = Plan(runs, talk, engines, kv_tokens, rounds, urls=urls, real=real)
    console, found = Console(), Found()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_stopped(measure(plan, found, console.print)))
    except (ChildEnded, CompareFailed, LoadFailed, BuildError, aiohttp.ClientError) as failed:
        sys.exit(f"bench prefix: {failed}")
    if not found.rounds:
        sys.exit("bench prefix: stopped")
    document = report(plan, found, not_run=[name for name in wanted if name not in runs])
    _show(console, document)
    if json is not None:
        write_json(json, document)


def report(plan: Plan, found: Found, not_run: list[str]) -> dict[str, Any]:
    """`summary`: medians of the rounds for each policy, and what an endless cache would spare."""
    ideal = median(shareable(jobs(plan.talk, plan.seed + n)) for n in range(plan.rounds))
    summary = {"ideal_hit_share": ideal}
    for policy, rounds in found.rounds.items():
        name = policy.replace("-", "_")
        summary[f"{name}_hit_share"] = median(one["hit_share"] for one in rounds)
        for statistic in ("p50", "p99"):
            values = [one["all"]["ttft_ms"].get(statistic, 0.0) for one in rounds]
            summary[f"{name}_ttft_ms_{statistic}"] = median(values)
        summary[f"{name}_errors"] = sum(sum(one["all"]["errors"].values()) for one in rounds)
    return {
        "schema": 1,
        "summary": {name: round(value, 4) for name, value in summary.items()},
        "detail": {"policies": found.rounds, "not_run": not_run, "kv_tokens": plan.kv_tokens},
        "environment": environment(),
    }


def _show(console: Console, document: dict[str, Any]) -> None:
    summary = document["summary"]
    ideal = summary["ideal_hit_share"]
    table = Table(title=f"prefix cache; an endless one would spare {ideal:.0%}", box=SIMPLE)
    table.add_column("policy", no_wrap=True)
    for column in ("hit share", "TTFT p50 ms", "p99 ms", "errors"):
        table.add_column(column, justify="right")
    for policy in document["detail"]["policies"]:
        name = policy.replace("-", "_")
        table.add_row(
            policy,
            f"{summary[f'{name}_hit_share']:.0%}",
            *(f"{summary[f'{name}_ttft_ms_{which}']:,.0f}" for which in ("p50", "p99")),
            f"{summary[f'{name}_errors']:g}",
        )
    console.print(table)
    for policy in document["detail"]["not_run"]:
        console.print(f"{policy}: not run, it is not installed")
