"""`python -m bench load`: the command line of a run."""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from backends.types import Timeouts
from bench import traces
from bench.environment import environment
from bench.load.arrivals import Arrivals, Rhythm, jobs, limited, sizes
from bench.load.discover import LoadFailed
from bench.load.output import show, write_csv, write_json
from bench.load.plan import Lengths
from bench.load.prompts import InexactTokenizer
from bench.load.session import Outcome, Settings, run_load
from bench.load.summary import Objective, detail, flat
from bench.load.target import Api
from bench.workload import Job, at_rate

RATE = 10.0

DURATION = 30.0
"""Seconds of an open loop that nothing else bounds."""

CLOSED_REQUESTS = 500
"""Requests of a closed loop that nothing else bounds."""

SIZES = "N, N@WEIGHT,N@WEIGHT, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"


def load(
    url: Annotated[str, typer.Argument(help="An OpenAI-compatible server, with or without /v1.")],
    rate: Annotated[
        float | None, typer.Option(help="Requests per second on average (10; a trace's own).")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Replay this: Azure's CSV, Mooncake's JSON lines, our request log."),
    ] = None,
    arrivals: Annotated[Rhythm, typer.Option(help="How they are spread.")] = Rhythm.POISSON,
    variation: Annotated[float, typer.Option(help="Of gamma gaps: 1 is Poisson.")] = 2.0,
    burst: Annotated[float, typer.Option(help="Seconds of a burst, for on-off.")] = 1.0,
    pause: Annotated[float, typer.Option(help="Seconds between bursts, for on-off.")] = 4.0,
    concurrency: Annotated[
        int | None, typer.Option(help="Closed loop with so many open requests, not a rate.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds in which requests are begun (default 30).")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="At most so many requests.")] = None,
    prompt: Annotated[str, typer.Option(help=f"Prompt tokens: {SIZES}.")] = "100@0.9,8000@0.1",
    output: Annotated[str, typer.Option(help=f"Output tokens: {SIZES}.")] = "16",
    warm_up: Annotated[float, typer.Option(help="First seconds, reported apart.")] = 0.0,
    api: Annotated[Api, typer.Option()] = Api.CHAT,
    stream: Annotated[bool, typer.Option(help="Ask for streamed answers.")] = True,
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask vLLM for answers of the full length.")
    ] = True,
    model: Annotated[str | None, typer.Option(help="Default: the first one served.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Directory or tokenizer.json; default: as served.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY")] = None,
    short: Annotated[int, typer.Option(help="Longest prompt to call short.")] = 1024,
    slo_ttft: Annotated[float, typer.Option(help="Goodput's TTFT, seconds.")] = 0.6,
    slo_tpot: Annotated[float | None, typer.Option(help="Goodput's TPOT, seconds.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for a request.")] = 600.0,
    seed: Annotated[int, typer.Option(help="The same seed, the same requests.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write results here.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one line per request here.")] = None,
) -> None:
    """Load a server and measure it from each request's intended start.

    An open loop: requests are begun at their times whether or not others were answered, unless
    --concurrency asks for a closed one. Ctrl-C ends the run and shows what was measured.
    """
    try:
        if trace is not None:
            recorded = traces.read(trace)
            endless = iter(recorded if rate is None else at_rate(recorded, rate))
        else:
            rhythm = Arrivals(RATE if rate is None else rate, arrivals, variation, burst, pause)
            endless = jobs(rhythm, sizes(prompt), sizes(output), seed=seed)
        planned = limited(endless, **_limits(concurrency, duration, requests))
    except (OSError, ValueError) as error:
        sys.exit(f"bench load: {error}")
    settings = Settings(
        url=url,
        model=model,
        tokenizer=tokenizer,
        api=api,
        stream=stream,
        ignore_eos=ignore_eos,
        api_key=api_key,
        concurrency=concurrency,
        duration=duration,
        lengths=Lengths(short=short),
        warm_up=warm_up,
        seed=seed,
        timeouts=Timeouts(connect=10.0, first_token=timeout, token_gap=timeout, total=timeout),
    )
    measure(settings, planned, Objective(slo_ttft, slo_tpot), json=json, csv=csv)


def _limits(
    concurrency: int | None, duration: float | None, requests: int | None
) -> dict[str, Any]:
    """How much of the endless plan is made: in a closed loop its times mean nothing."""
    if concurrency is not None:
        return {"count": requests or CLOSED_REQUESTS, "duration": None}
    return {"count": requests, "duration": duration or (None if requests else DURATION)}


def measure(
    settings: Settings,
    planned: list[Job],
    objective: Objective,
    *,
    json: Path | None,
    csv: Path | None,
) -> None:
    """Run the load, show the results and write the files. Exits 1 when it could not be run."""
    console = Console()
    if not planned:
        sys.exit("bench load: no request falls into that time")
    console.print(f"{len(planned)} requests to {settings.url}")
    try:
        outcome = asyncio.run(run_load(settings, planned, Console(stderr=True)))
    except (LoadFailed, InexactTokenizer) as error:
        sys.exit(f"bench load: {error}")
    found = detail(outcome.samples, outcome.effort, objective)
    if outcome.served.guessed:
        console.print("The server does not say where its tokenizer is: prompt lengths are guesses.")
    show(console, found)
    if csv is not None:
        write_csv(csv, outcome.samples)
    if json is not None:
        write_json(json, document(settings, outcome, found))


def document(settings: Settings, outcome: Outcome, found: dict[str, Any]) -> dict[str, Any]:
    """The JSON result: see `bench.load.output`."""
    run = asdict(settings) | {
        "api_key": None,
        "model": outcome.served.model,
        "tokenizer": str(outcome.served.tokenizer),
        "template_tokens": outcome.overhead,
    }
    return {
        "schema": 1,
        "summary": flat(found),
        "detail": found,
        "run": run,
        "environment": environment(),
    }
