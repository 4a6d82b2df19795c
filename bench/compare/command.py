"""`python -m bench compare`: Forebay beside other gateways and none, in one run."""

import asyncio
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
import uvloop
from rich.console import Console

from bench.children import ChildEnded, Children, children
from bench.compare import engines as sources
from bench.compare.engines import CompareFailed, Engines
from bench.compare.install import FROM_THE_SYSTEM, PACKAGES, install
from bench.compare.report import of_scenarios, summary, table
from bench.compare.run import DIRECT, Found, Plan, compare
from bench.compare.scenarios import ENGINES, SCENARIOS, Pace, named
from bench.demo import until_stopped
from bench.environment import environment
from bench.load.output import write_json
from bench.peers.commands import PEERS, is_installed
from bench.pictures import MissingLibrary, style
from bench.pictures.compare import draw
from scripts.vllm_env.build import BuildError, build
from scripts.vllm_env.layout import locate

DEFAULT = ",".join((DIRECT, *PEERS))


def compare_command(
    peers: Annotated[str, typer.Option(help="Which, separated by commas.")] = DEFAULT,
    scenario: Annotated[str, typer.Option(help="hol, burst, chat: separated by commas.")] = "hol",
    rounds: Annotated[int, typer.Option(help="How often each peer has its turn.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="Of each scenario in each turn.", min=1)] = 40.0,
    backend: Annotated[
        list[str] | None, typer.Option(help="Servers that run already, instead of simulated ones.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Theirs; default: the first served.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Its directory.")] = None,
    prefill_us: Annotated[
        float | None, typer.Option(help="What a prompt token costs them: loads are shares of it.")
    ] = None,
    real: Annotated[bool, typer.Option("--real", help="Start a real vLLM on the CPU.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Write PNG files here.")] = None,
    install_to: Annotated[
        Path | None, typer.Option("--install", help="Only set up peers from PyPI, in this folder.")
    ] = None,
) -> None:
    """Send the same requests through each gateway, in turn, before the same engines."""
    console = Console()
    wanted = peers.split(",")
    if unknown := set(wanted) - {DIRECT, *PEERS}:
        raise typer.BadParameter(f"no such peer: {', '.join(unknown)}", param_hint="--peers")
    if install_to is not None:
        failed = install(install_to, [peer for peer in PACKAGES if peer in wanted], console.print)
        raise typer.Exit(bool(failed))
    count = 1 if real else len(backend or ()) or ENGINES
    prefill = None if prefill_us is None else prefill_us * 1e-6
    runs = tuple(peer for peer in wanted if peer == DIRECT or is_installed(peer))
    with _failures_told():
        if pictures is not None:
            style.check()
        plan = Plan(tuple(named(scenario)), runs, rounds, Pace(seconds, count, prefill))
        source = Source(backend or [], model, tokenizer, real=real)
        found = _run(measure(plan, source, console))
    for peer in wanted:
        if peer not in runs:
            found.failed[peer] = f"not installed: {FROM_THE_SYSTEM.get(peer, 'see --install')}"
    _report(found, console, json, pictures)


@dataclass(frozen=True, slots=True)
class Source:
    """Which engines: those at `urls`, a real vLLM here, else simulated ones."""

    urls: list[str]
    model: str | None
    tokenizer: Path | None
    real: bool


async def measure(plan: Plan, source: Source, console: Console) -> Found:
    """Raises CompareFailed, and ChildEnded when an engine ends."""
    found = Found()
    if source.urls:
        engines = await sources.given(source.urls, source.model, source.tokenizer)
        await compare(plan, engines, found, console.print)
        return found
    presets = {SCENARIOS[name].preset: None for name in plan.scenarios}
    for preset in ["real"] if source.real else presets:
        own = [name for name in plan.scenarios if source.real or SCENARIOS[name].preset == preset]
        with tempfile.TemporaryDirectory(prefix="forebay-engines-") as logs:
            async with children(Path(logs)) as started:
                engines = await _engines(started, plan, preset)
                part = replace(plan, scenarios=tuple(own))
                await compare(part, engines, found, console.print)
    return found


async def _engines(started: Children, plan: Plan, preset: str) -> Engines:
    if preset != "real":
        return await sources.simulated(started, plan.pace.engines, preset)
    layout = locate()
    await asyncio.to_thread(build, layout, typer.echo)
    return await sources.real(started, layout)


def _run(work: Coroutine[Any, Any, Found]) -> Found:
    """SIGTERM and Ctrl-C end it, and no process is left. Raises KeyboardInterrupt then."""
    found: list[Found] = []

    async def kept() -> None:
        found.append(await work)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped(kept()))
    if not found:
        raise KeyboardInterrupt
    return found[0]


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except ChildEnded as ended:
        sys.exit(f"compare: {ended}; the end of its log:\n{ended.log}")
    except (BuildError, CompareFailed, MissingLibrary, ValueError, aiohttp.ClientError) as failed:
        sys.exit(f"compare: {failed}")
    except KeyboardInterrupt:
        sys.exit("compare: stopped")


def _report(found: Found, console: Console, json: Path | None, pictures: Path | None) -> None:
    scenarios = of_scenarios(found.rounds)
    for name, scenario in scenarios.items():
        console.print(table(name, scenario))
    for peer, reason in found.failed.items():
        console.print(f"{peer}: not run: {reason}")
    if json is not None:
        document = {
            "schema": 1,
            "summary": summary(scenarios),
            "detail": {"scenarios": scenarios, "not_run": found.failed},
            "environment": environment(),
        }
        write_json(json, document)
        console.print(f"wrote {json}")
    if pictures is not None:
        for path in draw(pictures, scenarios):
            console.print(f"wrote {path}")
