"""A run's results for people and for programs: a table, a JSON document, a CSV of requests.

The JSON document, schema 1:

    summary      flat numbers, for comparing runs: `ttft_ms_p99`, `short_ttft_ms_p50`, …
    detail       `all`, `classes.<name>` and `warm_up`: counts, errors by kind, rates, and
                 latencies in milliseconds as {mean, p50, p90, p95, p99, max};
                 `generator`: its lateness, CPU, and why it was the bottleneck, if it was
    run          what was asked for
    environment  versions, cores, revision
"""

import csv
from collections.abc import Sequence
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


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def write_csv(path: Path, samples: Sequence[Sample]) -> None:
    """One line for each request, warm-up included; times in seconds from the run's start."""
    names = [field.name for field in fields(Sample) if field.name not in LISTS]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "ttft", "tpot", "e2e", "lateness"])
        for sample in samples:
            derived = (sample.ttft, sample.tpot, sample.e2e, sample.lateness)
            writer.writerow([*(getattr(sample, name) for name in names), *derived])


def show(console: Console, detail: dict[str, Any]) -> None:
    """The table, then what the reader must know before trusting it."""
    table = Table(title="milliseconds from the intended start", box=SIMPLE)
    for column in ("class", "latency"):
        table.add_column(column)
    for column in (*STATISTICS, "requests", "errors", "good/s"):
        table.add_column(column, justify="right")
    for name, numbers in {**detail["classes"], "all": detail["all"]}.items():
        for row in _rows(name, numbers):
            table.add_row(*row)
        table.add_section()
    console.print(table)
    for name, count in detail["all"]["errors"].items():
        console.print(f"{count} × {name}")
    for stage, numbers in detail["all"]["stages_ms"].items():
        console.print(f"stage {stage}: p50 {numbers['p50']:.2f} ms, p99 {numbers['p99']:.2f} ms")
    _show_generator(console, detail["generator"])


def _rows(name: str, numbers: dict[str, Any]) -> list[list[str]]:
    """One row for each latency; the counts stand in the first."""
    errors = sum(numbers["errors"].values())
    counts = [str(numbers["requests"]), str(errors), f"{numbers['goodput_per_s']:.1f}"]
    rows: list[list[str]] = []
    for latency in LATENCIES:
        values = numbers[latency]
        cells = [f"{values[statistic]:.1f}" if values else "–" for statistic in STATISTICS]
        first = not rows
        head = [name if first else "", latency.removesuffix("_ms").upper()]
        rows.append([*head, *cells, *(counts if first else ["", "", ""])])
    return rows


def _show_generator(console: Console, generator: dict[str, Any]) -> None:
    lateness = generator["lateness_ms"].get("p99", 0.0)
    console.print(
        f"generator: {generator['cpu_share']:.0%} of a core, lateness p99 {lateness:.2f} ms"
    )
    for reason in generator["bottleneck"]:
        console.print(f"[bold red]the generator was part of what was measured:[/] {reason}")
