"""`forebay capacity`: its command line, and what it prints and writes."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import costs
from bench.capacity import plan
from bench.capacity.demand import Rhythm, demand, servable
from bench.capacity.document import answer
from bench.capacity.objective import parse
from bench.engine import EngineSpec
from bench.environment import environment
from bench.load.output import check_writable, write_json
from bench.pictures import MissingLibrary, style
from bench.pictures.capacity import draw
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.traces import MOONCAKE_BLOCK, find, read
from bench.workload import Job


def capacity(
    qps: Annotated[float, typer.Option(help="Requests a second, as a mean.", min=0.001)],
    trace: Annotated[
        str,
        typer.Option(
            help="azure-conv, azure-code or mooncake (in $FOREBAY_TRACES), or a file: one of "
            "these, or the gateway's request log."
        ),
    ] = "azure-conv",
    slo: Annotated[
        str,
        typer.Option(
            help="mean, p50, p90, p95 or p99=MILLISECONDS, with commas; short.p99= for a class."
        ),
    ] = "mean=200,p99=600",
    engine_file: Annotated[
        Path | None,
        typer.Option(
            "--engine",
            help="Costs that `bench calibrate` or `forebay recalibrate` has written; default: an "
            "A100 80 GB with an 8B model, from data sheets.",
        ),
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(help="As the engines are started.", min=1)] = 256,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Likewise.", min=1)] = 2048,
    kv_tokens: Annotated[
        int | None, typer.Option(help="Their KV cache; default: what the memory leaves.", min=16)
    ] = None,
    requests: Annotated[int, typer.Option(help="The first so many of the trace.", min=2)] = 4000,
    arrivals: Annotated[Rhythm, typer.Option(help="When they come.")] = Rhythm.TRACE,
    bound: Annotated[int, typer.Option(help="The longest short prompt, in tokens.", min=1)] = 1024,
    warm_up: Annotated[float, typer.Option(help="Seconds that are not judged.", min=0)] = 8.0,
    brute_force: Annotated[
        bool, typer.Option("--brute-force", help="Also play every number of engines from 1 on.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw goodput against engines here.")] = None,
) -> None:
    """How many engines hold an objective at a rate of requests: the simulator's answer, the rule
    "rate x mean TTFT, plus 20%" beside it, and why they differ."""
    try:
        check_writable(json, figure)
        if figure is not None:
            style.check()
        objective = parse(slo, bound)
        jobs = read(find(trace), requests)
        limits = _limits(jobs, max_num_seqs, max_num_batched_tokens, kv_tokens)
        spec = costs.read(engine_file, limits) if engine_file is not None else limits
        sizes = servable(jobs, spec)
        asked = demand(sizes, spec, qps, warm_up, arrivals)
        random = demand(sizes, spec, qps, warm_up, Rhythm.POISSON)
        if few := objective.too_few(asked.judged):
            raise ValueError(f"{'; '.join(few)}: raise --requests, or shorten --warm-up")
        plan.check(asked, objective)
        ladder = plan.Ladder(random, asked if arrivals is Rhythm.TRACE else None)
        document = answer(ladder, objective, brute_force=brute_force)
        document["detail"]["left_out"] = len(jobs) - len(sizes)
        if json is not None:
            write_json(json, document | {"environment": environment()})
        _show(Console(), document)
        if figure is not None:
            draw(figure, document)
    except (MissingLibrary, OSError, ValueError) as failed:
        sys.exit(f"forebay capacity: {failed}")


def _limits(jobs: Sequence[Job], seqs: int, batched: int, kv: int | None) -> EngineSpec:
    """The preset with the limits that were asked for. Mooncake's prefixes are of larger blocks."""
    blocks = MOONCAKE_BLOCK if any(job.prefix for job in jobs) else 16
    spec = engine(A100_80GB, LLAMA_8B, block_tokens=blocks)
    return replace(
        spec,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        kv_tokens=spec.kv_tokens if kv is None else kv,
    )


def _show(console: Console, document: dict[str, Any]) -> None:
    summary, detail = document["summary"], document["detail"]
    console.print(
        f"[bold]{summary['engines']} engines[/] hold {detail['objective']} at "
        f"{summary['qps']:g} requests a second: mean {summary['ttft_mean_ms']:.0f} ms, p99 "
        f"{summary['ttft_p99_ms']:.0f} ms"
    )
    console.print(
        f"the rule, {summary['qps']:g} x {summary['ttft_alone_mean_ms']:.0f} ms + 20%: "
        f"{summary['engines_rule']}"
    )
    if "engines_rule_at_target" in summary:
        console.print(
            f"the rule with the mean that the objective allows: {summary['engines_rule_at_target']}"
        )
    for sentence in detail["reasons"]:
        console.print(f"  - {sentence}", soft_wrap=True)
    if detail["left_out"]:
        console.print(f"left out: {detail['left_out']} requests larger than the KV cache")
    if not summary["monotone"]:
        console.print("near the edge more engines did not always do better: see detail.steps")
    if "engines_brute_force" in summary:
        console.print(
            f"brute force: {summary['engines_brute_force']}, after "
            f"{summary['runs_brute_force']} runs in place of {summary['runs_last_step']}"
        )
