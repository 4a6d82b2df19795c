"""`python -m bench.recalibrate`: its command line, and what it prints and writes."""

import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from bench.engine import SERIAL
from bench.environment import environment
from bench.load.output import write_json
from bench.recalibrate import fleet
from bench.recalibrate.boundary import try_all
from bench.recalibrate.document import document, told_changes
from bench.recalibrate.fit import learn
from bench.recalibrate.log import busiest

MOST = 20_000
"""Requests of the log that are learned from."""


def recalibrate(
    log: Annotated[list[Path], typer.Option(help="The request log; repeatable, .gz too.")],
    settings: Annotated[Path, typer.Option(help="The classes and backends in force, as JSON.")],
    since: Annotated[float, typer.Option(help="From when on, in Unix seconds.")] = 0.0,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="As the engines are started.", min=1)
    ] = SERIAL.max_num_batched_tokens,
    kv_tokens: Annotated[int, typer.Option(help="Likewise: their KV cache.", min=16)] = (
        SERIAL.kv_tokens
    ),
    json: Annotated[
        Path | None, typer.Option(help="The result; costs found there are compared with.")
    ] = None,
) -> None:
    """Fit engine costs to the request log, and find the best bound of the smallest class."""
    limits = replace(SERIAL, max_num_batched_tokens=max_num_batched_tokens, kv_tokens=kv_tokens)
    try:
        parts = busiest(log, since, MOST)
        requests = [seen for part in parts for seen in part]
        situation = fleet.of_log(fleet.read(settings), requests)
        learned = learn(parts, limits)
        with ProcessPoolExecutor() as pool:
            choice = try_all(situation, learned.fitted.spec, parts, pool)
        found = document(parts, learned, choice, situation)
        before = _earlier(json)
        _show(Console(), found, before)
        if json is not None:
            write_json(json, found | {"environment": environment()})
    except (OSError, ValueError) as failed:
        sys.exit(f"forebay recalibrate: {failed}")


def _earlier(path: Path | None) -> Mapping[str, float]:
    """The summary that an earlier run has left there; none of a file that is something else."""
    if path is None or not path.exists():
        return {}
    try:
        summary: Mapping[str, float] = orjson.loads(path.read_bytes())["summary"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return summary


def _show(console: Console, found: dict[str, Any], before: Mapping[str, float]) -> None:
    summary, detail = found["summary"], found["detail"]
    console.print(
        f"{summary['requests']:,} requests in {summary['parts']} parts of the log; the fitted "
        f"engine is off by {summary['held_out_error']:.0%} (median, requests not fitted)",
        soft_wrap=True,
    )
    console.print(
        f"prefill {summary['prefill_us']:.4g} us a token, step {summary['step_ms']:.4g} ms, decode "
        f"{summary['decode_us']:.4g} us a sequence, {summary['overhead_ms']:.4g} ms before the "
        f"engine",
        soft_wrap=True,
    )
    for sentence in told_changes(before, summary):
        console.print(f"since the last time: {sentence}")
    for name, ratio in detail["backends"].items():
        if ratio > 1.2:
            console.print(f"backend {name} is {ratio:.2f} times as slow as the fit of all")
    for one in detail["tried"]:
        mark = " (now)" if one["bound"] == summary["bound_now"] else ""
        console.print(f"bound {one['bound']:>6}{mark}: p99 stretch {one['stretch']:.2f}")
    if not detail["changes"]:
        console.print(f"the bound of {summary['bound_now']} tokens stays")
