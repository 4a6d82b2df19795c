"""A run's results for people and for programs: a table, the JSON file, a CSV of requests.

What is in the JSON: `document`.
"""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.load.sample import Sample

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
STATISTICS = ("p50", "p90", "p99", "max")
LISTS = ("gaps", "stages")


class NotWritable(ValueError):
    """A result cannot be written there; the message says why, and what to do."""


def check_writable(*paths: Path | None) -> None:
    """Before a run is better than after it: then its results are lost. Raises NotWritable."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise NotWritable(f"cannot write {path}: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise NotWritable(f"cannot write {path}: there is no folder {path.parent}; create it")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise NotWritable(f"cannot write {path}: no permission; name another file")


def folder_made(path: Path) -> None:
    """The folder for pictures, created where it is missing. Raises NotWritable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"cannot make the folder {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise NotWritable(f"cannot write into {path}: no permission; name another folder")


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def write_csv(path: Path, samples: Sequence[Sample]) -> None:
    """One line for each request, warm-up included; times in seconds from the run's start."""
    _write_lines(path, [], [([], samples)])


def write_sweep_csv(path: Path, steps: Mapping[float, Sequence[Sample]]) -> None:
    """The same of each step, its rate in front; times from the step's own start."""
    _write_lines(path, ["rate"], [([rate], samples) for rate, samples in steps.items()])


def _write_lines(
    path: Path, front: list[str], runs: Iterable[tuple[list[float], Sequence[Sample]]]
) -> None:
    names = [field.name for field in fields(Sample) if field.name not in LISTS]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*front, *names, "ttft", "tpot", "e2e", "lateness"])
        for before, samples in runs:
            for sample in samples:
                derived = (sample.ttft, sample.tpot, sample.e2e, sample.lateness)
                writer.writerow([*before, *(getattr(sample, name) for name in names), *derived])


def show(console: Console, detail: dict[str, Any], run: dict[str, Any]) -> None:
    """The table, then what the reader must know before trusting it."""
    table = Table(title="milliseconds from the intended start", box=SIMPLE, pad_edge=False)
    for column in ("class", ""):
        table.add_column(column, no_wrap=True)
    for column in (*STATISTICS, "sent", "errors", "good/s"):
        table.add_column(column, justify="right")
    warm_up = {"warm-up": detail["warm_up"]} if detail["warm_up"]["requests"] else {}
    for name, numbers in {**detail["classes"], "all": detail["all"], **warm_up}.items():
        for row in _rows(name, numbers):
            table.add_row(*row)
        table.add_section()
    console.print(table)
    for name, numbers in detail["classes"].items():
        _show_errors(console, name, numbers)
    for stage, numbers in detail["all"]["stages_ms"].items():
        console.print(f"stage {stage}: p50 {numbers['p50']:.2f} ms, p99 {numbers['p99']:.2f} ms")
    _show_run(console, run)
    _show_generator(console, detail["generator"])


def _rows(name: str, numbers: dict[str, Any]) -> list[list[str]]:
    """One row for each latency; the counts stand in the first."""
    errors = sum(numbers["errors"].values())
    counts = [str(numbers["requests"]), str(errors), f"{numbers['goodput_per_s']:.1f}"]
    rows: list[list[str]] = []
    for latency in LATENCIES:
        values = numbers[latency]
        cells = [_milliseconds(values[statistic]) if values else "–" for statistic in STATISTICS]
        first = not rows
        head = [name if first else "", latency.removesuffix("_ms").upper()]
        rows.append([*head, *cells, *(counts if first else ["", "", ""])])
    return rows


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def _show_errors(console: Console, name: str, numbers: dict[str, Any]) -> None:
    for error, count in numbers["errors"].items():
        told = numbers["retry_after_s"].get(error)
        advice = (
            f", {told['count']} with Retry-After: p50 {told['p50']:g} s, max {told['max']:g} s"
            if told
            else ""
        )
        console.print(f"{name}: {count} × {error}{advice}")


def _show_run(console: Console, run: dict[str, Any]) -> None:
    """What was not as asked."""
    if run["tokenizer_guessed"]:
        console.print("The server does not say where its tokenizer is: prompt lengths are guesses.")
    if run["left_out"]:
        console.print(f"{run['left_out']} requests left out: longer than the model's context.")
    if run["interrupted"]:
        console.print("Interrupted: these are the answers up to then.")


def _show_generator(console: Console, generator: dict[str, Any]) -> None:
    lateness = generator["lateness_ms"].get("p99", 0.0)
    console.print(
        f"generator: {generator['cpu_share']:.0%} of a core, waited for one "
        f"{generator['core_wait_share']:.0%}, lateness p99 {lateness:.2f} ms: "
        f"{generator['verdict']}"
    )
    for reason in generator["bottleneck"]:
        console.print(f"[bold red]the generator was part of what was measured:[/] {reason}")


def show_sweep(console: Console, steps: Sequence[dict[str, Any]]) -> None:
    """One row for each rate; `late` is the generator's own lateness, p99."""
    table = Table(title="latency against load, milliseconds", box=SIMPLE, pad_edge=False)
    columns = ("rate/s", "done/s", "good/s", "errors", "TTFT p50", "p99", "E2E p50", "p99", "late")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for step in steps:
        numbers = step["all"]
        latencies = [
            f"{numbers[latency][statistic]:.1f}" if numbers[latency] else "–"
            for latency in ("ttft_ms", "e2e_ms")
            for statistic in ("p50", "p99")
        ]
        table.add_row(
            f"{step['rate']:g}",
            f"{numbers['requests_per_s']:.1f}",
            f"{numbers['goodput_per_s']:.1f}",
            str(sum(numbers["errors"].values())),
            *latencies,
            f"{step['generator']['lateness_ms'].get('p99', 0.0):.1f}",
        )
    console.print(table)
    if late := [f"{step['rate']:g}" for step in steps if step["generator"]["bottleneck"]]:
        console.print(
            f"[bold red]the generator was part of what was measured at[/] {', '.join(late)}"
        )
