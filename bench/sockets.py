"""`python -m bench confirm`: the head-of-line scenario over real sockets, beside its simulation.

Two processes of bench.fake_vllm, the same engine model in real time; the same requests once asked
of them directly, in turn, and once through a gateway. The simulator plays the same requests. What
sockets, processes and the gateway's timers add is the difference; it should be within 15%.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from backends.types import Timeouts
from bench.children import children
from bench.compare.engines import Engines, simulated
from bench.compare.run import DIRECT, gateway
from bench.figures import percentile
from bench.load.plan import Lengths
from bench.load.session import Settings as LoadSettings
from bench.load.session import run_load
from bench.peers.commands import PEERS
from bench.policies import today
from bench.scenarios import Report
from bench.scenarios.hol import SETTINGS, Setting
from bench.simulate import show
from bench.simulation import Simulation, ready
from bench.workload import HEAD_OF_LINE, Job, mean_prompt, poisson
from scheduler.model import ClassSpec, Placement, Settings

OURS = "forebay"
BOUND = 1024
WARM_UP = 5.0
_LIMIT = 64
_TIMEOUTS = Timeouts(connect=10.0, first_token=120.0, token_gap=120.0, total=180.0)
Waits = dict[str, list[float]]
"""Seconds to the first token of the short prompts and of the long ones."""


def confirm(
    setting: Annotated[str, typer.Option(help="35, 70 or 70_tuned: the load of two engines.")] = (
        "35"
    ),
    seconds: Annotated[float, typer.Option(help="How long each of the two runs is.", min=10)] = 60,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 1,
    slower: Annotated[
        float, typer.Option(help="Slow the engines by this, where the machine is busy.", min=1)
    ] = 1.0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Check the simulated head-of-line scenario against real sockets and processes."""
    chosen = slowed(SETTINGS[setting], slower)
    jobs = workload(chosen, seconds, seed)
    with tempfile.TemporaryDirectory(prefix="forebay-hol-") as folder:
        measured = asyncio.run(measure(chosen, jobs, Path(folder)))
    detail = {
        name: {"sockets": _numbers(waits), "simulated": _numbers(simulate(chosen, name, jobs))}
        for name, waits in measured.items()
    }
    show(Report(summary(detail), dict(detail)), json)


def slowed(setting: Setting, factor: float) -> Setting:
    """Milliseconds that other processes cost weigh less beside slower engines."""
    spec = setting.spec
    spec = replace(spec, prefill_per_token=spec.prefill_per_token * factor)
    return replace(setting, spec=spec)


def workload(setting: Setting, seconds: float, seed: int) -> list[Job]:
    busy = setting.load * setting.engines
    rate = busy / (mean_prompt(HEAD_OF_LINE) * setting.spec.prefill_per_token)
    return poisson(HEAD_OF_LINE, rate, round(rate * (seconds + WARM_UP)), seed)


async def measure(setting: Setting, jobs: Sequence[Job], folder: Path) -> dict[str, Waits]:
    """Both ways over sockets, one after the other, before the same engines."""
    chunk = str(setting.spec.long_prefill_token_threshold)
    prefill = f"{setting.spec.prefill_per_token * 1e6:.0f}"
    flags = (
        "--no-enable-prefix-caching",
        *("--long-prefill-token-threshold", chunk),
        *("--prefill-us", prefill),
    )
    found = {}
    async with children(folder) as started:
        engines = await simulated(started, setting.engines, "serial", flags)
        for name in (DIRECT, OURS):
            async with gateway(name, PEERS.get(name), engines) as urls:
                found[name] = await _ask(urls, engines, jobs)
    return found


async def _ask(urls: tuple[str, ...], engines: Engines, jobs: Sequence[Job]) -> Waits:
    settings = LoadSettings(
        url=urls[0],
        also=urls[1:],
        timeouts=_TIMEOUTS,
        lengths=Lengths(short=BOUND),
        model=engines.model,
        tokenizer=engines.tokenizer,
        warm_up=WARM_UP,
    )
    outcome = await run_load(settings, jobs, Console(quiet=True))
    return _by_size(
        (jobs[sample.number].prompt, sample.ttft)
        for sample in outcome.samples
        if not sample.warm_up and sample.ttft is not None
    )


def simulate(setting: Setting, name: str, jobs: Sequence[Job]) -> Waits:
    """The same in virtual time, with the settings that a gateway has by default."""
    ours = Settings(classes=(ClassSpec("short", BOUND), ClassSpec("long", ttft_target=5.0)))
    settings = ours if name == OURS else today(Placement.ROUND_ROBIN)
    engines = {f"engine{index}": setting.spec for index in range(setting.engines)}
    backends = [replace(ready(key, spec), limit=_LIMIT) for key, spec in engines.items()]
    outcomes = Simulation(settings, engines, backends if name == OURS else ()).run(jobs)
    return _by_size((o.job.prompt, o.ttft) for o in outcomes if o.job.at >= WARM_UP)


def _by_size(pairs: Any) -> Waits:
    waits: Waits = {"short": [], "long": []}
    for prompt, ttft in pairs:
        waits["short" if prompt <= BOUND else "long"].append(ttft)
    return waits


def _numbers(waits: Waits) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for kind, values in waits.items():
        for share in (0.5, 0.95, 0.99):
            numbers[f"{kind}_p{share * 100:.0f}"] = round(percentile(values, share) * 1e3, 2)
        numbers[f"{kind}_mean"] = round(sum(values) / max(1, len(values)) * 1e3, 2)
        numbers[f"{kind}_requests"] = len(values)
    return numbers


def summary(detail: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """Sockets over simulation, and what the gateway wins over asking in turn, both ways.

    The simulator knows of no sockets. What each request pays for them is the difference of the
    short prompts' medians, which wait for nothing; `beyond_fixed` has it added to the simulation.
    """
    found: dict[str, float] = {}
    for name, both in detail.items():
        sockets, virtual = both["sockets"], both["simulated"]
        fixed = sockets["short_p50"] - virtual["short_p50"]
        found[f"{name}_fixed_ms"] = round(fixed, 3)
        for key in ("short_mean", "short_p99", "long_mean", "long_p99"):
            ratio = sockets[key] / virtual[key]
            found[f"{name}_{key}_sockets_over_simulated"] = round(ratio, 3)
            beyond = sockets[key] / (virtual[key] + fixed)
            found[f"{name}_{key}_beyond_fixed"] = round(beyond, 3)
    for way in ("sockets", "simulated"):
        ratio = detail[DIRECT][way]["short_p99"] / detail[OURS][way]["short_p99"]
        found[f"short_p99_ratio_{way}"] = round(ratio, 3)
    return found
