"""`python -m bench report` and `python -m bench headline`: their command lines."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from bench.environment import environment
from bench.load.output import write_json
from bench.report import text
from bench.report.headline import judged, summary, word
from bench.report.run import Ended, run
from bench.report.suite import SUITE, chosen

INDEX = "report.json"

Directory = Annotated[Path, typer.Option("--out", help="Where the results lie.")]


def report(
    out: Directory = Path("bench-report"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything in brief: does it run? No figures to keep.")
    ] = False,
    real: Annotated[
        bool, typer.Option("--real", help="With the commands that need a real vLLM.")
    ] = False,
    only: Annotated[str | None, typer.Option(help="Only these steps, with commas.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Put the figures between the marks of this page.")
    ] = None,
) -> None:
    """Run all measurements, one after the other, and gather what they say.

    With --only the results of earlier steps in the same directory stand. Exits 1 when one failed.
    """
    if quick and page is not None:
        raise typer.BadParameter("leave --page away: what is brief has no figures to keep")
    try:
        steps = chosen(quick=quick, real=real, only=only)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from error
    earlier = _earlier(out)
    ended = run(steps, out, Console().print, quick=quick)
    told = list((earlier | {one.name: one for one in ended}).values())
    documents = _documents(out)
    found = judged(text.summaries(documents))
    figures = text.figures(documents, told)
    said = f"{figures}\n\n{text.headline(found)}\n"
    (out / "report.md").write_text(said)
    _write_index(out, told, found)
    if page is not None:
        try:
            page.write_text(text.placed(page.read_text(), said.rstrip()))
        except ValueError as error:
            sys.exit(f"bench report: {page}: {error}")
    Console().print(f"wrote {out / 'report.md'}")
    raise typer.Exit(any(one.status for one in ended))


def headline(
    results: Annotated[
        Path, typer.Option("--from", help="A directory that `bench report` has written.")
    ] = Path("bench-report"),
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """The claims this project started from, one by one, from results that are there."""
    documents = _documents(results)
    if not documents:
        sys.exit(f"bench headline: no results in {results}: run `python -m bench report` first")
    found = judged(text.summaries(documents))
    console = Console()
    for one in found:
        console.print(f"[bold]{word(one['met'])}[/]: {one['source']}")
        console.print(f"    {one['about']}: {one['figure']}")
    if json is not None:
        _write(json, found, {name: document["summary"] for name, document in documents.items()})


def _earlier(directory: Path) -> dict[str, Ended]:
    """Steps of earlier reports in that directory: what is not run again stands as it was."""
    index = directory / INDEX
    if not index.exists():
        return {}
    steps = orjson.loads(index.read_bytes())["detail"]["steps"]
    return {step["name"]: Ended(**step | {"arguments": tuple(step["arguments"])}) for step in steps}


def _documents(directory: Path) -> dict[str, Any]:
    """The results that are there, by step."""
    files = {step.name: directory / f"{step.name}.json" for step in SUITE}
    return {name: orjson.loads(file.read_bytes()) for name, file in files.items() if file.exists()}


def _write(path: Path, found: list[dict[str, Any]], results: dict[str, Any]) -> None:
    document = {
        "schema": 1,
        "summary": summary(found),
        "detail": {"claims": found, "results": results},
        "environment": environment(),
    }
    write_json(path, document)


def _write_index(out: Path, ended: list[Ended], found: list[dict[str, Any]]) -> None:
    document = {
        "schema": 1,
        "summary": {f"{one.name}_seconds": round(one.seconds, 1) for one in ended}
        | {"failed": sum(one.status != 0 for one in ended)},
        "detail": {"steps": [asdict(one) for one in ended], "claims": found},
        "environment": environment(),
    }
    write_json(out / INDEX, document)
