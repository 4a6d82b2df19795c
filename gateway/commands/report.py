"""`forebay report`: the daily TTFT analysis, from the request log."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from gateway.commands.shared import seconds
from gateway.config import ClassConfig, Config
from gateway.report.analysis import Analysis, analyse
from gateway.report.lines import Log
from gateway.report.picture import NoPictures, draw
from gateway.report.table import show


def report(
    *,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="The request log; repeat it for rotated files (.gz too)."),
    ] = None,
    since: Annotated[str, typer.Option(help="How far back: 90m, 24h, 7d.")] = "24h",
    until: Annotated[
        float | None, typer.Option(help="Where the span ends, in Unix seconds; default: now.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="CLASS=SECONDS: what its TTFT should be. Repeatable."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the numbers here; - is stdout, without the table.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Draw the report here.")] = None,
) -> None:
    """How the TTFT was: distribution, stages, worst backends, against the span before."""
    paths = log or [Path("requests.jsonl")]
    lines = Log(paths)
    try:
        analysis = analyse(
            lines,
            until=time.time() if until is None else until,
            span=seconds("--since", since),
            targets=_targets(target or []),
        )
        _write(analysis, lines.unreadable, json, png)
    except OSError as error:
        _give_up(f"{error.filename}: {error.strerror}; name the request log with --log FILE")
    except (NoPictures, ValueError) as error:
        _give_up(str(error))


def _write(analysis: Analysis, unreadable: int, json: Path | None, png: Path | None) -> None:
    document = asdict(analysis.report) | {"unreadable_lines": unreadable}
    if json is not None:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        if json == Path("-"):
            sys.stdout.buffer.write(text)
        else:
            json.write_bytes(text)
    if png is not None:
        draw(analysis, png)
    if json != Path("-"):
        show(analysis.report, unreadable, Console())


def _targets(options: list[str]) -> dict[str, float]:
    """The defaults of the settings, and what the command line says instead."""
    classes: dict[str, ClassConfig] = Config.model_fields["classes"].get_default(
        call_default_factory=True
    )
    targets = {name: spec.ttft_target for name, spec in classes.items()}
    for option in options:
        name, _, seconds = option.partition("=")
        if not name or not _positive(seconds):
            raise ValueError(f"--target takes CLASS=SECONDS, such as short=0.6, not {option!r}")
        targets[name] = float(seconds)
    return targets


def _positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _give_up(message: str) -> None:
    typer.secho(f"forebay: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)
