"""`python -m bench load`: the command line of a run, or of a sweep over several rates."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from backends.types import Timeouts
from bench.load import flags
from bench.load.arrivals import Arrivals, Rhythm
from bench.load.discover import LoadFailed
from bench.load.document import of_run, of_sweep
from bench.load.output import (
    check_writable,
    folder_made,
    show,
    show_sweep,
    write_csv,
    write_json,
    write_sweep_csv,
)
from bench.load.plan import Lengths
from bench.load.prompts import InexactTokenizer
from bench.load.sample import Sample
from bench.load.session import Outcome, Settings, run_load
from bench.load.summary import Objective
from bench.load.target import Api
from bench.load.workloads import Limits, Workload
from bench.pictures import MissingLibrary, style
from bench.pictures.load import draw_run, draw_sweep
from bench.stopping import INTERRUPTED
from bench.workload import Job


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go besides the terminal."""

    json: Path | None = None
    csv: Path | None = None
    pictures: Path | None = None

    def check(self) -> None:
        """Raises MissingLibrary and NotWritable: before the run is better than after it."""
        check_writable(self.json, self.csv)
        if self.pictures is not None:
            style.check()
            folder_made(self.pictures)


def load(
    url: flags.Url,
    also: flags.Also = None,
    rate: flags.Rate = None,
    sweep: flags.Sweep = None,
    trace: flags.Trace = None,
    speed: flags.Speed = 1.0,
    resample: flags.Resample = False,
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
    pictures: flags.Pictures = None,
) -> None:
    """Load a server and measure it from each request's intended start.

    An open loop: requests are begun at their times whether or not others were answered, unless
    --concurrency asks for a closed one. Ctrl-C ends the run and shows what was measured.
    """
    settings = Settings(
        url=url, timeouts=_timeouts(timeout), lengths=Lengths(short=short), also=tuple(also or ()),
        model=model, tokenizer=tokenizer, api=api, stream=stream, ignore_eos=ignore_eos,
        api_key=api_key, concurrency=concurrency, duration=duration, warm_up=warm_up, seed=seed,
    )  # fmt: skip
    objective, outputs = Objective(slo_ttft, slo_tpot), Outputs(json, csv, pictures)
    with _failures_told():
        for server in (url, *settings.also):
            flags.check_url(server)
        outputs.check()
        rhythm = Arrivals(1.0, arrivals, variation, burst, pause)
        limits = Limits(requests, duration, closed=concurrency is not None)
        load = Workload(rhythm, limits, prompt, output, trace, speed, resample, seed)
        if sweep is None:
            measure(settings, load.jobs(rate), objective, outputs)
        else:
            steps = {step: load.jobs(step) for step in flags.rates(sweep, concurrency)}
            measure_sweep(settings, steps, objective, outputs)


@contextmanager
def _failures_told() -> Iterator[None]:
    """What ends the command, in a line for the person at the terminal."""
    try:
        yield
    except (OSError, ValueError, LoadFailed, InexactTokenizer, MissingLibrary) as error:
        sys.exit(f"bench load: {error}")
    except KeyboardInterrupt as stopped:
        print(f"bench load: {str(stopped) or 'stopped before the first request'}", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _timeouts(seconds: float) -> Timeouts:
    return Timeouts(connect=10.0, first_token=seconds, token_gap=seconds, total=seconds)


def send(settings: Settings, planned: list[Job]) -> Outcome:
    """One run in an event loop of its own. Raises LoadFailed and InexactTokenizer."""
    if not planned:
        raise LoadFailed("no request falls into that time")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_load(settings, planned, Console(stderr=True), interruptible=True))


def measure(settings: Settings, planned: list[Job], objective: Objective, outputs: Outputs) -> None:
    """Run the load, write the files and show the results. Raises as `send`."""
    console = Console()
    console.print(f"{len(planned)} requests to {settings.url}")
    outcome = send(settings, planned)
    document = of_run(settings, outcome, objective)
    if outputs.json is not None:
        write_json(outputs.json, document)
    if outputs.csv is not None:
        write_csv(outputs.csv, outcome.samples)
    show(console, document["detail"], document["run"])
    if outputs.pictures is not None:
        for path in draw_run(outputs.pictures, outcome.samples, document["detail"]):
            console.print(f"wrote {path}")


def measure_sweep(
    settings: Settings, steps: dict[float, list[Job]], objective: Objective, outputs: Outputs
) -> None:
    """One run after the other, from the lowest rate to the highest. Whatever ends the sweep early,
    the steps before are written and shown. Raises as `send`, and KeyboardInterrupt for Ctrl-C."""
    console = Console()
    documents: dict[float, dict[str, Any]] = {}
    samples: dict[float, list[Sample]] = {}
    try:
        for number, rate in enumerate(sorted(steps)):
            console.print(f"{len(steps[rate])} requests to {settings.url} at {rate:g} a second")
            # Texts of another seed: no step finds its prompts in the prefix cache.
            step = replace(settings, seed=settings.seed + number)
            outcome = send(step, steps[rate])
            documents[rate], samples[rate] = of_run(step, outcome, objective), outcome.samples
            if outcome.interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped: this is what was measured" if documents else "") from None
    finally:
        if documents:
            _conclude_sweep(console, documents, samples, outputs)


def _conclude_sweep(
    console: Console,
    documents: dict[float, dict[str, Any]],
    samples: dict[float, list[Sample]],
    outputs: Outputs,
) -> None:
    document = of_sweep(documents)
    if outputs.json is not None:
        write_json(outputs.json, document)
    if outputs.csv is not None:
        write_sweep_csv(outputs.csv, samples)
    show_sweep(console, document["detail"]["steps"])
    if outputs.pictures is not None:
        console.print(f"wrote {draw_sweep(outputs.pictures, document['detail']['steps'])}")
