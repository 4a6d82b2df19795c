"""`python -m bench workers`: the throughput of several relay processes over that of one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench.overhead.stand import OverheadFailed
from bench.scenarios import Report
from bench.simulate import show
from bench.stopping import measuring, until_stopped
from bench.workers.measure import Turn, measure


def workers(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    count: Annotated[int, typer.Option(help="Relay processes, against one.", min=2)] = 2,
    rounds: Annotated[int, typer.Option(help="How often each is measured.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="Of each turn, warm-up included.", min=0.5)] = 4.0,
) -> None:
    """Measure what more relay processes bring, and what engine and client take of the machine."""
    with measuring("workers", OverheadFailed) as folder:
        turns = asyncio.run(until_stopped(measure(count, rounds, seconds, folder)))
    show(report(turns, count), json)


def report(turns: Mapping[int, Sequence[Turn]], count: int) -> Report:
    """`throughput_ratio` is as measured, with engine and client on the same cores.

    `own_cores_ratio` is what the gateway's CPU per request says of `count` cores that are its own:
    count × (CPU per request with one process) / (CPU per request with `count`).
    """
    one, many = turns[1], turns[count]
    summary = {
        "workers": float(count),
        "requests_per_s_1": _median(one, lambda t: t.result.rate),
        "requests_per_s_n": _median(many, lambda t: t.result.rate),
        "gateway_cpu_us_1": _median(one, lambda t: t.result.cpu_us),
        "gateway_cpu_us_n": _median(many, lambda t: t.result.cpu_us),
        "brain_cpu_us_n": _median(many, lambda t: _each(t, t.brain)),
        "engine_cpu_us_1": _median(one, lambda t: _each(t, t.engine)),
        "engine_cpu_us_n": _median(many, lambda t: _each(t, t.engine)),
        "client_cpu_us_1": _median(one, lambda t: _each(t, t.result.own_cpu)),
        "client_cpu_us_n": _median(many, lambda t: _each(t, t.result.own_cpu)),
    }
    summary["throughput_ratio"] = summary["requests_per_s_n"] / summary["requests_per_s_1"]
    summary["own_cores_ratio"] = count * summary["gateway_cpu_us_1"] / summary["gateway_cpu_us_n"]
    rates = {str(n): [turn.result.rate for turn in taken] for n, taken in turns.items()}
    return Report(summary, {"requests_per_s": rates})


def _median(turns: Sequence[Turn], figure: Callable[[Turn], float]) -> float:
    return median(figure(turn) for turn in turns)


def _each(turn: Turn, seconds: float) -> float:
    """Microseconds for each request."""
    return seconds / turn.result.requests * 1e6
