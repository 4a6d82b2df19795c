"""`python -m bench soak`: a day's requests at full speed; does anything grow that should not?

Slices of unstreamed, streamed and paced chats take turns, each over new connections, and each ends
with its clients hanging up in the middle of their requests. Memory of each process is read after
every slice; descriptors and tasks in quiet moments, after the first tenth and at the end.
"""

import asyncio
import itertools
import os
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.overhead.accounts import rss_bytes, tree
from bench.overhead.loads import STREAMS, Load
from bench.overhead.source import FAILURES, INSTANT, Backend, Model, Real, Source, chosen
from bench.overhead.stand import OverheadFailed, Stand, Target, standing
from bench.peers.commands import PEERS, Place
from bench.scenarios import Report
from bench.simulate import show
from bench.stopping import measuring, until_stopped

SETTLED = 0.1
"""The share of the requests after which nothing may grow any more."""
MIX = (
    Load(STREAMS, 8, 8, stream=False),
    Load(STREAMS, 4, 16),
    Load(STREAMS, 8, 24, prefill=0.01, gap=0.005),
)
_REQUESTS = re.compile(r"^forebay_requests_total\{[^}]*\} (\S+)$", re.MULTILINE)
_TASKS = re.compile(r"^forebay_tasks(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many requests at least; times in seconds."""

    requests: int
    each: float
    quiet: float
    workers: int
    source: Source = INSTANT


@dataclass(frozen=True, slots=True)
class Quiet:
    """What was open while nothing was asked."""

    descriptors: int
    tasks: int


@dataclass(slots=True)
class Soaked:
    """`memory`: after each slice, the requests until then and each process's resident bytes."""

    pids: list[int]
    memory: list[tuple[int, list[int]]] = field(default_factory=list)
    settled: Quiet = Quiet(0, 0)
    ended: Quiet = Quiet(0, 0)
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return self.memory[-1][0] if self.memory else 0


def soak(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    requests: Annotated[
        int, typer.Option(help="How many, at least; fewer before a real engine.", min=1)
    ] = 1_000_000,
    slice_seconds: Annotated[float, typer.Option(help="Of each kind in its turn.", min=0.2)] = 5.0,
    quiet_seconds: Annotated[
        float, typer.Option(help="Before descriptors are counted; unused ones are kept for 4.")
    ] = 6.0,
    workers: Annotated[int, typer.Option(help="Relay processes of the gateway.", min=1)] = 1,
    backend: Backend = None,
    model: Model = None,
    real: Real = False,
) -> None:
    """Send a day's requests at full speed, and see whether memory, descriptors or tasks grow."""
    source = chosen(backend, model, real=real)
    plan = Plan(requests, slice_seconds, quiet_seconds, workers, source)
    with measuring("soak", OverheadFailed, *FAILURES) as folder:
        found = asyncio.run(until_stopped(measure(plan, folder)))
    done = report(found, source)
    table = Table("process", "MB after a tenth", "MB at the end", "growth")
    for number, (early, late) in enumerate(_memory(found)):
        growth = f"{late / early - 1:+.1%}"
        table.add_row(str(number), f"{early / 1e6:.1f}", f"{late / 1e6:.1f}", growth)
    Console().print(table)
    show(done, json)


def report(found: Soaked, source: Source = INSTANT) -> Report:
    memory = _memory(found)
    summary = {
        "requests": float(found.requests),
        "seconds": round(found.seconds, 1),
        "requests_per_s": round(found.requests / found.seconds, 1),
        "rss_growth_mb": round(sum(late - early for early, late in memory) / 1e6, 2),
        "rss_growth_percent": round(max(100.0 * (late / early - 1.0) for early, late in memory), 2),
        "fd_growth": float(found.ended.descriptors - found.settled.descriptors),
        "task_growth": float(found.ended.tasks - found.settled.tasks),
    }
    for number, (early, late) in enumerate(memory):
        summary[f"process_{number}_rss_growth_mb"] = round((late - early) / 1e6, 2)
    detail = {
        "engine": source.name,
        "rss_bytes": [{"requests": count, "processes": sizes} for count, sizes in found.memory],
        "descriptors": [found.settled.descriptors, found.ended.descriptors],
        "tasks": [found.settled.tasks, found.ended.tasks],
    }
    return Report(summary, detail)


def _memory(found: Soaked) -> list[tuple[float, float]]:
    """Each process's bytes when the first tenth was over and in the last one, medians."""
    after = [sizes for count, sizes in found.memory if count >= SETTLED * found.requests]
    tenth = max(1, len(after) // 9)
    early, late = after[:tenth], after[-tenth:]
    return [
        (median(sizes[n] for sizes in early), median(sizes[n] for sizes in late))
        for n in range(len(found.pids))
    ]


async def measure(plan: Plan, folder: Path) -> Soaked:
    """Raises OverheadFailed, ChildEnded and FAILURES."""
    async with standing(folder, plan.source) as stand:
        target = await stand.start("forebay", partial(_with_workers, plan.workers))
        found = Soaked(tree(target.pid))
        began = monotonic()
        for load in itertools.cycle(MIX):
            await stand.send(target, load, plan.each)
            count = await _ended(stand, target)
            found.memory.append((count, [rss_bytes(pid) for pid in found.pids]))
            if not found.settled.descriptors and count >= SETTLED * plan.requests:
                found.settled = await _quiet(stand, target, plan.quiet)
            if count >= plan.requests:
                break
        found.seconds = monotonic() - began
        found.ended = await _quiet(stand, target, plan.quiet)
        return found


def _with_workers(workers: int, place: Place) -> list[str]:
    return [*PEERS["forebay"](place), "--workers", str(workers)]


async def _ended(stand: Stand, target: Target) -> int:
    """The requests that the gateway has counted, however they ended."""
    return int(sum(map(float, _REQUESTS.findall(await stand.ask(target, "/metrics")))))


async def _quiet(stand: Stand, target: Target, seconds: float) -> Quiet:
    await asyncio.sleep(seconds)
    tasks = _TASKS.findall(await stand.ask(target, "/metrics"))
    descriptors = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in tree(target.pid))
    return Quiet(descriptors, int(sum(map(float, tasks))))
