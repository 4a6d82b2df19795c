"""`python -m bench stall`: how long a gateway's event loop stands still with many streams open.

So many streams at 40 tokens a second each, while some end and as many begin: what each gateway's
own sampler counted meanwhile, between two scrapes. Fewer streams are tried until the 99th
percentile keeps the limit. Not here: the samplers (`gateway.stalls`, `bench.peers.stalls`).
"""

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.overhead.loads import Load
from bench.overhead.stand import OverheadFailed, Stand, Target, standing
from bench.peers.commands import PEERS, Command, Place
from bench.scenarios import Report
from bench.simulate import show
from bench.stopping import measuring, until_stopped

LIMIT = 0.005
"""Seconds: the goal for the 99th percentile."""
GAP = 0.025
PER_STREAM = 0.04
"""New requests a second for each open stream: 20 with 500."""
GATEWAYS = ("forebay", "aiohttp")
_BUCKET = re.compile(r'^forebay_loop_stall_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)

Counts = dict[float, float]
"""Samples by upper bound, cumulative."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """What one gateway did at one number of streams; times in seconds."""

    gateway: str
    streams: int
    p99: float
    over_limit: float
    samples: int
    tokens_per_s: float = 0.0
    new_per_s: float = 0.0
    core_share: float = 0.0


def stall(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    streams: Annotated[str, typer.Option(help="Numbers to try, falling.")] = "500,350,250,175,125",
    seconds: Annotated[float, typer.Option(help="At each number, a quarter is warm-up.")] = 12.0,
) -> None:
    """Measure how many streams a gateway's loop carries with a p99 stall under 5 ms."""
    numbers = sorted(map(int, streams.split(",")), reverse=True)
    with measuring("stall", OverheadFailed) as folder:
        found = asyncio.run(until_stopped(_measure(numbers, seconds, folder)))
    done = _report(found)
    table = Table("gateway", "streams", "stall p99 ms", "over 5 ms", "tokens/s", "new/s", "core")
    for one in found:
        row = (one.gateway, one.streams, f"{one.p99 * 1e3:.1f}", f"{one.over_limit:.2%}")
        load = (f"{one.tokens_per_s:,.0f}", f"{one.new_per_s:.0f}", f"{one.core_share:.0%}")
        table.add_row(*map(str, row), *load)
    Console().print(table)
    show(done, json)


def _report(found: list[Stalled]) -> Report:
    summary: dict[str, float] = {}
    for name in GATEWAYS:
        idle, *own = [one for one in found if one.gateway == name]
        held = [one.streams for one in own if one.p99 < LIMIT]
        prefix = "" if name == "forebay" else f"{name}_"
        summary[f"{prefix}streams_held"] = max(held, default=0)
        summary[f"{prefix}stall_p99_ms"] = round(own[0].p99 * 1e3, 3)
        summary[f"{prefix}idle_stall_p99_ms"] = round(idle.p99 * 1e3, 3)
    detail = {f"{one.gateway}_{one.streams}": _plain(one) for one in found}
    return Report(summary, detail)


def _plain(one: Stalled) -> dict[str, float]:
    names = ("p99", "over_limit", "samples", "tokens_per_s", "new_per_s", "core_share")
    return {name: getattr(one, name) for name in names}


async def _measure(numbers: list[int], seconds: float, folder: Path) -> list[Stalled]:
    async with standing(folder) as stand:
        found = []
        for name in GATEWAYS:
            command = _roomy if name == "forebay" else PEERS[name]
            target = await stand.start(name, command)
            found.append(await _idle(stand, target, seconds / 2))
            for number in numbers:
                found.append(await _take(stand, target, number, seconds))
                if found[-1].p99 < LIMIT:
                    break
        return found


async def _idle(stand: Stand, target: Target, seconds: float) -> Stalled:
    """Without a stream: what the machine itself does to a loop at this hour."""
    before = _counts(await stand.ask(target, "/metrics"))
    await asyncio.sleep(seconds)
    after = _counts(await stand.ask(target, "/metrics"))
    return _stalled(target.name, 0, _between(before, after))


def _roomy(place: Place) -> list[str]:
    """Forebay, allowed to open more streams than a real engine has slots for."""
    settings = place.folder / "forebay.yaml"
    backend = f"{{url: {place.urls[0]}, limit: 4096}}"
    settings.write_text(f"backends: {{engine: {backend}}}\ntimeouts: {{token_gap: 60}}\n")
    usual: Command = PEERS["forebay"]
    command = usual(place)
    cut = command.index("--backend")
    return [*command[:cut], "--config", str(settings), *command[cut + 2 :]]


async def _take(stand: Stand, target: Target, number: int, seconds: float) -> Stalled:
    longest = max(2, int(2 / (PER_STREAM * GAP)))
    load = Load(number, 1, longest, prefill=0.02, gap=GAP)
    before = _counts(await stand.ask(target, "/metrics"))
    result = await stand.send(target, load, seconds)
    after = _counts(await stand.ask(target, "/metrics"))
    return replace(
        _stalled(target.name, number, _between(before, after)),
        tokens_per_s=result.events / result.seconds,
        new_per_s=result.rate,
        core_share=result.cpu / result.seconds,
    )


def _stalled(gateway: str, streams: int, counts: Counts) -> Stalled:
    samples = counts.get(float("inf"), 0.0)
    if not samples:
        raise OverheadFailed(f"{gateway} has counted no samples of its loop")
    over = 1.0 - counts[LIMIT] / samples
    return Stalled(gateway, streams, quantile(counts, 0.99), over, int(samples))


def _between(before: Counts, after: Counts) -> Counts:
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def _counts(text: str) -> Counts:
    return {float(bound): float(count) for bound, count in _BUCKET.findall(text)}


def quantile(counts: Counts, share: float) -> float:
    """As Prometheus' histogram_quantile: linear within the bucket in which it lies."""
    wanted = share * counts[float("inf")]
    below, lower = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / ((count - below) or 1.0)
        below, lower = count, bound
    return lower
