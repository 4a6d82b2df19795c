"""`python -m bench compare`, and `hol` and `burst`: Forebay beside other gateways and none."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import typer
import uvloop
from rich.console import Console

from bench.children import ChildEnded, Children, children
from bench.compare import engines as sources
from bench.compare import flags
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
from bench.vllm_env.build import BuildError

ALL = ",".join((DIRECT, *PEERS))
WIDTH = 110
"""Columns of a table that goes to a file."""

BASELINES = "direct,forebay,nginx,vllm-router"
"""Beside Forebay: none, a proxy, and a router that knows load and prefixes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A comparison as the command line asks for it; see `flags`."""

    peers: str
    scenario: str
    rounds: int
    seconds: float
    source: "Source"
    prefill_us: float | None = None
    json: Path | None = None
    pictures: Path | None = None

    def plan(self) -> Plan:
        """Raises ValueError. Peers that are not installed are left out."""
        wanted = self.peers.split(",")
        if unknown := set(wanted) - {DIRECT, *PEERS}:
            raise ValueError(f"no such peer: {', '.join(unknown)}; there are {ALL}")
        runs = tuple(peer for peer in wanted if peer == DIRECT or is_installed(peer))
        prefill = None if self.prefill_us is None else self.prefill_us * 1e-6
        pace = Pace(self.seconds, self.source.count, prefill)
        return Plan(tuple(named(self.scenario)), runs, self.rounds, pace)


def compare_command(
    peers: flags.Peers = ALL,
    scenario: flags.Scenario = "hol",
    rounds: flags.Rounds = 3,
    seconds: flags.Seconds = 40.0,
    backend: flags.Backend = None,
    model: flags.Model = None,
    tokenizer: flags.Tokenizer = None,
    prefill_us: flags.PrefillUs = None,
    real: flags.Real = False,
    json: flags.Json = None,
    pictures: flags.Pictures = None,
    install_to: flags.Install = None,
) -> None:
    """Send the same requests through each gateway, in turn, before the same engines."""
    if install_to is not None:
        wanted = [peer for peer in PACKAGES if peer in peers.split(",")]
        raise typer.Exit(bool(install(install_to, wanted, Console().print)))
    source = Source(tuple(backend or ()), model, tokenizer, real=real)
    compared(Asked(peers, scenario, rounds, seconds, source, prefill_us, json, pictures))


def of_scenario(name: str, about: str) -> Callable[..., None]:
    """The command of one scenario: the comparison with fewer peers."""

    def command(
        peers: flags.Peers = BASELINES,
        rounds: flags.Rounds = 3,
        seconds: flags.Seconds = 40.0,
        backend: flags.Backend = None,
        model: flags.Model = None,
        tokenizer: flags.Tokenizer = None,
        prefill_us: flags.PrefillUs = None,
        real: flags.Real = False,
        json: flags.Json = None,
        pictures: flags.Pictures = None,
    ) -> None:
        source = Source(tuple(backend or ()), model, tokenizer, real=real)
        compared(Asked(peers, name, rounds, seconds, source, prefill_us, json, pictures))

    command.__doc__ = about
    return command


def compared(asked: Asked) -> None:
    """Run it, show the tables and write the files. Ends the program when it cannot be run."""
    console = Console()
    with _failures_told():
        if asked.pictures is not None:
            style.check()
        plan = asked.plan()
        found = _run(measure(plan, asked.source, console))
    for peer in asked.peers.split(","):
        if peer not in plan.peers:
            found.failed[peer] = f"not installed: {FROM_THE_SYSTEM.get(peer, 'see --install')}"
    _report(found, console, asked.json, asked.pictures)


@dataclass(frozen=True, slots=True)
class Source:
    """Which engines: those at `urls`, a real vLLM here, else simulated ones."""

    urls: tuple[str, ...]
    model: str | None
    tokenizer: Path | None
    real: bool

    @property
    def count(self) -> int:
        return 1 if self.real else len(self.urls) or ENGINES


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
    return await sources.real(started, typer.echo)


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
    if not console.is_terminal:
        console.width = max(WIDTH, console.width)
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
