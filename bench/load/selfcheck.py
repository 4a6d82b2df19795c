"""`python -m bench selfcheck`: what the load generator itself adds to the latencies it reports.

In turn, against a server that answers at once: the ruler (a blocking socket) and the generator in a
closed loop of one, then both again at a rate. What differs is the generator's own.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

import orjson
import typer
import uvloop
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from backends.types import Timeouts
from bench.children import ChildEnded, children
from bench.environment import environment
from bench.fake_vllm import TOKENIZER
from bench.load.discover import LoadFailed
from bench.load.output import write_json
from bench.load.plan import Lengths
from bench.load.prompts import Prompts, length_with
from bench.load.ruler import RulerFailed, ttfts
from bench.load.session import Settings, run_load
from bench.load.summary import distribution, generator
from bench.load.target import Target
from bench.workload import Job

WAYS = {
    "ruler": "blocking socket",
    "closed": "closed loop of 1",
    "paced": "blocking socket, paced",
    "open": "open loop",
}
"""In the order of their turns; each of the generator's follows its ruler."""

_PROMPT, _OUTPUT = 100, 8
_TIMEOUTS = Timeouts(connect=5.0, first_token=30.0, token_gap=30.0, total=60.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Each of `rounds` sends `requests` in each way; `rate` is the open loop's."""

    url: str
    model: str
    rounds: int
    requests: int
    rate: float


@dataclass(frozen=True, slots=True)
class Turn:
    """One way in one round: milliseconds, and the generator's CPU for a request."""

    way: str
    ttft_ms: dict[str, float]
    cpu_us_per_request: float = 0.0
    lateness_ms_p99: float = 0.0


def selfcheck(
    url: Annotated[
        str | None, typer.Argument(help="A server that answers at once; default: our own.")
    ] = None,
    model: Annotated[str, typer.Option(help="What it serves.")] = "instant",
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    requests: Annotated[int, typer.Option(help="In each round and way.", min=10)] = 500,
    rate: Annotated[float, typer.Option(help="Of the open loop, per second.", min=1)] = 200.0,
    limit_ms: Annotated[
        float, typer.Option(help="What it may add at the median of a closed loop.")
    ] = 0.1,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure what the load generator itself adds, beside the plainest client there is.

    Exits 1 when that is over --limit-ms.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="forebay-selfcheck-") as folder:
            plan = Plan(url or "", model, rounds, requests, rate)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                turns = runner.run(_check(plan, Path(folder)))
    except (ChildEnded, LoadFailed, RulerFailed, OSError) as failed:
        sys.exit(f"bench selfcheck: {failed}")
    summary = summarise(turns)
    _show(summary)
    if json is not None:
        write_json(json, {"schema": 1, "summary": summary, "environment": environment()})
    if summary["closed_added_ms_p50"] > limit_ms:
        sys.exit(f"bench selfcheck: the generator adds more than {limit_ms} ms")


async def _check(plan: Plan, folder: Path) -> list[Turn]:
    if plan.url:
        return await turns_of(plan)
    async with children(folder) as started:
        command = (sys.executable, "-m", "bench.overhead.engine")
        engine = await started.start("engine", *command, announces=True)
        line = await engine.first_line()
        if not line:
            await asyncio.Event().wait()  # It ended; its watcher is about to say so.
        return await turns_of(replace(plan, url=f"http://127.0.0.1:{orjson.loads(line)['port']}"))


async def turns_of(plan: Plan) -> list[Turn]:
    """All turns, one after the other. The ruler blocks: nothing else is to run beside it."""
    target = Target(plan.url, plan.model)
    prompts = Prompts(length_with(TOKENIZER / "tokenizer.json"))
    bodies = [
        target.body([prompts.text(_PROMPT, number)], _OUTPUT) for number in range(plan.requests)
    ]
    found: list[Turn] = []
    for number in range(plan.rounds):
        found.append(Turn("ruler", distribution(ttfts(target, bodies))))
        found.append(await _generated(plan, "closed", number, concurrency=1))
        found.append(Turn("paced", distribution(ttfts(target, bodies, pause=1 / plan.rate))))
        found.append(await _generated(plan, "open", number, concurrency=None))
    return found


async def _generated(plan: Plan, way: str, seed: int, *, concurrency: int | None) -> Turn:
    jobs = [Job(number / plan.rate, _PROMPT, _OUTPUT) for number in range(plan.requests)]
    settings = Settings(
        url=plan.url,
        timeouts=_TIMEOUTS,
        lengths=Lengths(),
        model=plan.model,
        tokenizer=TOKENIZER,
        concurrency=concurrency,
        seed=seed,
    )
    outcome = await run_load(settings, jobs, Console(quiet=True))
    if errors := [sample.error for sample in outcome.samples if sample.error]:
        raise LoadFailed(f"{len(errors)} requests failed: {errors[0]}")
    effort = generator(outcome.samples, outcome.effort)
    return Turn(
        way,
        distribution(sample.ttft for sample in outcome.samples if sample.ttft is not None),
        effort["cpu_us_per_request"],
        effort["lateness_ms"]["p99"],
    )


def summarise(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians of the rounds; `added` is over the ruler in the same round."""
    rounds = [turns[start : start + len(WAYS)] for start in range(0, len(turns), len(WAYS))]
    found: dict[str, float] = {}
    for way in WAYS:
        mine = [turn for turn in turns if turn.way == way]
        for statistic in ("p50", "p99"):
            found[f"{way}_ttft_ms_{statistic}"] = median(t.ttft_ms[statistic] for t in mine)
    for index, way in ((1, "closed"), (3, "open")):
        found[f"{way}_added_ms_p50"] = median(
            each[index].ttft_ms["p50"] - each[index - 1].ttft_ms["p50"] for each in rounds
        )
        mine = [each[index] for each in rounds]
        found[f"{way}_cpu_us_per_request"] = median(t.cpu_us_per_request for t in mine)
    found["open_lateness_ms_p99"] = median(t.lateness_ms_p99 for t in turns if t.way == "open")
    return {name: round(value, 4) for name, value in found.items()}


def _show(summary: dict[str, float]) -> None:
    table = Table(title="TTFT of a server that answers at once", box=SIMPLE)
    table.add_column("client", no_wrap=True)
    for column in ("p50 ms", "p99 ms", "added ms", "CPU µs"):
        table.add_column(column, justify="right")
    for way, about in WAYS.items():
        table.add_row(
            about,
            *(f"{summary[f'{way}_ttft_ms_{statistic}']:.3f}" for statistic in ("p50", "p99")),
            f"{summary.get(f'{way}_added_ms_p50', 0.0):.3f}",
            f"{summary.get(f'{way}_cpu_us_per_request', 0.0):.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"open loop: lateness p99 {summary['open_lateness_ms_p99']:.3f} ms")
