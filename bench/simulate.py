"""`python -m bench simulate`: the real scheduler over model engines, in virtual time.

Writes `summary` (flat numbers), `detail` and `environment`. Equal arguments give equal numbers
on every machine; only `environment` differs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from bench.environment import environment
from bench.scenarios import Report, burst, cached, headline, hol, limits, trace, tuning


class Scenario(StrEnum):
    """What can be simulated; each file in `bench/scenarios` says what it shows."""

    HOL = "hol"
    BURST = "burst"
    CACHED = "cached"
    HEADLINE = "headline"
    LIMITS = "limits"
    TRACE = "trace"
    TUNING = "tuning"


def simulate(
    scenario: Annotated[Scenario, typer.Option(help="What to simulate.")] = Scenario.HOL,
    requests: Annotated[
        int, typer.Option(help="Requests in each run of hol and trace.", min=100)
    ] = 20_000,
    trace_file: Annotated[
        Path | None, typer.Option("--trace", help="Azure .csv or Mooncake .jsonl.", exists=True)
    ] = None,
    rate: Annotated[float, typer.Option(help="headline: requests a second.", min=1)] = 10_000.0,
    seconds: Annotated[float, typer.Option(help="headline: measured seconds.", min=1)] = 10.0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Simulate the scheduler over model engines in virtual time."""
    if scenario is Scenario.HOL:
        report = hol.run(requests)
    elif scenario is Scenario.BURST:
        report = burst.run()
    elif scenario is Scenario.CACHED:
        report = cached.run()
    elif scenario is Scenario.LIMITS:
        report = limits.run()
    elif scenario is Scenario.TUNING:
        report = tuning.run(trace_file)
    elif scenario is Scenario.HEADLINE:
        report = headline.run(trace_file, rate, seconds)
    elif trace_file is None:
        raise typer.BadParameter("this scenario replays a trace", param_hint="--trace")
    else:
        report = trace.run(trace_file, requests)
    show(report, json)


def show(report: Report, json: Path | None) -> None:
    """Print the summary; write all of it where asked to."""
    console = Console()
    for name, value in report.summary.items():
        console.print(f"{name:40} {value:12,.3f}")
    if json is not None:
        document = {
            "summary": report.summary,
            "detail": report.detail,
            "environment": environment(),
        }
        json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        console.print(f"wrote {json}")
