"""`python -m bench load`: the command line of a run."""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.types import Timeouts
from bench import traces
from bench.environment import environment
from bench.load import flags
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


def load(
    url: flags.Url,
    rate: flags.Rate = None,
    trace: flags.Trace = None,
    arrivals: flags.Arrivals = Rhythm.POISSON,
    variation: flags.Variation = 2.0,
    burst: flags.Burst = 1.0,
    pause: flags.Pause = 4.0,
    concurrency: flags.Concurrency = None,
    duration: flags.Duration = None,
    requests: flags.Requests = None,
    prompt: flags.Prompt = "100@0.9,8000@0.1",
    output: flags.Output = "16",
    warm_up: flags.WarmUp = 0.0,
    api: flags.Api = Api.CHAT,
    stream: flags.Stream = True,
    ignore_eos: flags.IgnoreEos = True,
    model: flags.Model = None,
    tokenizer: flags.Tokenizer = None,
    api_key: flags.ApiKey = None,
    short: flags.Short = 1024,
    slo_ttft: flags.SloTtft = 0.6,
    slo_tpot: flags.SloTpot = None,
    timeout: flags.Timeout = 600.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
    csv: flags.Csv = None,
) -> None:
    """Load a server and measure it from each request's intended start.

    An open loop: requests are begun at their times whether or not others were answered, unless
    --concurrency asks for a closed one. Ctrl-C ends the run and shows what was measured.
    """
    settings = Settings(
        url=url,
        timeouts=Timeouts(connect=10.0, first_token=timeout, token_gap=timeout, total=timeout),
        lengths=Lengths(short=short),
        model=model,
        tokenizer=tokenizer,
        api=api,
        stream=stream,
        ignore_eos=ignore_eos,
        api_key=api_key,
        concurrency=concurrency,
        duration=duration,
        warm_up=warm_up,
        seed=seed,
    )
    try:
        rhythm = Arrivals(RATE if rate is None else rate, arrivals, variation, burst, pause)
        made = jobs(rhythm, sizes(prompt), sizes(output), seed=seed)
        endless = made if trace is None else iter(_recorded(trace, rate))
        planned = limited(endless, **_limits(concurrency, duration, requests))
    except (OSError, ValueError) as error:
        sys.exit(f"bench load: {error}")
    measure(settings, planned, Objective(slo_ttft, slo_tpot), json=json, csv=csv)


def _recorded(trace: Path, rate: float | None) -> list[Job]:
    recorded = traces.read(trace)
    return recorded if rate is None else at_rate(recorded, rate)


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
