"""`python -m bench tune` (also `forebay tune`): the command line of a search for flags."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from backends.plans.file import BadPlan
from bench import traces
from bench.load.arrivals import SIZES
from bench.load.discover import LoadFailed
from bench.pictures import MissingLibrary
from bench.stopping import measuring, until_stopped
from bench.tuning import targets
from bench.tuning.book import Book, BookFailed
from bench.tuning.compare import Comparison, compare
from bench.tuning.concluding import Outputs, Result, conclude
from bench.tuning.document import chosen_of, document
from bench.tuning.exhaustive import Exhaustive, exhaust
from bench.tuning.objective import Aim
from bench.tuning.search import Budget, NothingAllowed, Search
from bench.tuning.simulated import Simulated
from bench.tuning.space import NAMES
from bench.tuning.targets import EngineKind, Target
from bench.tuning.task import Order, task_of
from bench.tuning.telling import Telling
from bench.tuning.traffic import CLASSES, SHORT, Traffic
from bench.vllm_env.build import BuildError

_FAILURES = (
    BadPlan,
    BookFailed,
    BuildError,
    LoadFailed,
    MissingLibrary,
    NothingAllowed,
    OSError,
    ValueError,
)


def tune(
    engine: Annotated[
        EngineKind, typer.Option(help="A model, an engine of --plan, or vLLM on this CPU.")
    ] = EngineKind.SIM,
    gpu: Annotated[str, typer.Option(help=f"sim: {', '.join(targets.GPUS)}.")] = "a100-40gb",
    plan: Annotated[Path | None, typer.Option(help="managed: the plan file.")] = None,
    name: Annotated[str | None, typer.Option(help="managed: which engine of the plan.")] = None,
    service_class: Annotated[
        str, typer.Option("--class", help=f"Whose TTFT counts: {', '.join(CLASSES)}.")
    ] = SHORT,
    short: Annotated[int, typer.Option(help="Longest short prompt.", min=1)] = 1024,
    aim: Annotated[Aim, typer.Option(help="TTFT p99 over a throughput floor, or goodput.")] = (
        Aim.TTFT
    ),
    slo_ttft: Annotated[float, typer.Option(help="A good answer's TTFT, seconds.")] = 0.6,
    prompt: Annotated[str | None, typer.Option(help=f"Prompt tokens: {SIZES}.")] = None,
    output: Annotated[str | None, typer.Option(help="Answer tokens, likewise.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Draw sizes from this trace or request log.", exists=True)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second.", min=0.01)] = None,
    search: Annotated[
        str, typer.Option(help="Which flags, in the order in which they are tried.")
    ] = ",".join(NAMES.values()),
    requests: Annotated[int, typer.Option(help="Requests of a window.", min=20)] = 200,
    windows: Annotated[int, typer.Option(help="Windows of a candidate.", min=1)] = 3,
    evaluations: Annotated[float, typer.Option(help="At most, defaults included.", min=2)] = 60.0,
    minutes: Annotated[
        float | None, typer.Option(help="At most, the comparison included.", min=0.1)
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Of the comparison with the defaults; 0 leaves it out.", min=0)
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of the requests and of the search.")] = 0,
    study: Annotated[
        Path | None, typer.Option(help="An SQLite file: a stopped search goes on from it.")
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="sim: measure every candidate, too.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Write PNG files there.")] = None,
    write_plan: Annotated[
        Path | None, typer.Option(help="Write a plan with the chosen flags, if they are better.")
    ] = None,
) -> None:
    """Find max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold and
    gpu_memory_utilization for one class."""
    sizes = targets.SIMULATED if engine is EngineKind.SIM else targets.ON_CPU
    kept = (
        f"stopped; what was measured is kept, go on with --study {study}"
        if study
        else "stopped; what was measured is lost: with --study FILE it is kept, and goes on"
    )
    with measuring("tune", *_FAILURES, stopped=kept) as folder:
        _check(engine, gpu, plan, service_class, exhaustive=exhaustive)
        outputs = Outputs(json, pictures, write_plan)
        outputs.check()
        traffic = Traffic(
            rate or sizes[2], requests, prompt or sizes[0], output or sizes[1],
            recorded=tuple(traces.read(trace)) if trace else (),
            bound=short, service_class=service_class, target=slo_ttft, seed=seed,
        )  # fmt: skip
        seconds = float("inf") if minutes is None else 60 * minutes
        budget = Budget(windows, evaluations, seconds, rounds)
        flags = tuple(search.split(","))
        order = Order(engine, gpu, plan, name, aim, budget, seed, study, flags)
        run(order, traffic, outputs, folder, exhaustive=exhaustive)


def _check(
    engine: EngineKind, gpu: str, plan: Path | None, service_class: str, *, exhaustive: bool
) -> None:
    if gpu not in targets.GPUS:
        raise ValueError(f"--gpu takes one of {', '.join(targets.GPUS)}")
    if service_class not in CLASSES:
        raise ValueError(f"--class takes one of {', '.join(CLASSES)}")
    if (engine is EngineKind.MANAGED) is not (plan is not None):
        raise ValueError("--engine managed takes --plan FILE, the others don't")
    if exhaustive and engine is not EngineKind.SIM:
        raise ValueError("--exhaustive is for --engine sim: real engines would take days")


def run(
    order: Order, traffic: Traffic, outputs: Outputs, folder: Path, *, exhaustive: bool
) -> None:
    """The whole of it. Raises any of `_FAILURES`."""
    target = _target(order, traffic, folder)
    task = task_of(order, traffic, target)
    book = Book(target.space, task, order.seed, order.study)
    with Telling(order.aim, order.budget.windows, order.budget.evaluations) as telling:
        search = Search(target.evaluator, book, order.aim, order.budget, telling.candidate)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            comparison = runner.run(until_stopped(_measure(search)))
    every = _exhaust(target, search) if exhaustive else None
    conclude(Result(target, search, comparison), document(search, task, comparison, every), outputs)


async def _measure(search: Search) -> Comparison | None:
    await search.run()
    rounds = search.budget.rounds
    chosen, allowed = chosen_of(search)
    if not rounds or not allowed:
        return None
    return await compare(search.evaluator, chosen.flags, search.aim, rounds)


def _target(order: Order, traffic: Traffic, folder: Path) -> Target:
    if order.kind is EngineKind.SIM:
        found = targets.simulated(order.gpu, traffic)
    elif order.plan is not None:
        found = targets.managed(order.plan, order.name, traffic, folder)
    else:
        found = targets.real(traffic, folder)
    return replace(found, space=found.space.only(order.flags))


def _exhaust(target: Target, search: Search) -> Exhaustive:
    assert isinstance(target.evaluator, Simulated), "checked before anything was measured"
    return exhaust(target.evaluator, target.space, search.objective, search.budget.windows)
