"""The options of `python -m bench load`: their types and what the help says of them."""

from math import inf
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from bench.load.arrivals import SIZES, Rhythm
from bench.load.target import Api as _Api


def _option(about: str) -> Any:
    return typer.Option(help=about)


Url = Annotated[str, typer.Argument(help="An OpenAI-compatible server, with or without /v1.")]
Also = Annotated[
    list[str] | None, _option("A further server of the same model: they get requests in turn.")
]
Rate = Annotated[float | None, _option("Requests per second on average (10; a trace's own).")]
Trace = Annotated[
    Path | None, _option("Replay this: Azure's CSV, Mooncake's JSON lines, our request log.")
]
Sweep = Annotated[
    str | None, _option("Instead of one rate, one run at each: 5,10,20 requests per second.")
]
Speed = Annotated[float, typer.Option(help="Replay the trace so many times as fast.", min=1e-3)]
Resample = Annotated[
    bool, typer.Option("--resample", help="Of the trace only sizes, at --rate and --arrivals.")
]
Arrivals = Annotated[Rhythm, _option("How the requests are spread.")]
Variation = Annotated[float, _option("Of gamma gaps: 1 is Poisson.")]
Burst = Annotated[float, _option("Seconds of a burst, for on-off.")]
Pause = Annotated[float, _option("Seconds between bursts, for on-off.")]
Concurrency = Annotated[
    int | None, typer.Option(help="A closed loop of so many open requests, no rate.", min=1)
]
Duration = Annotated[float | None, _option("Seconds in which requests are begun (30).")]
Requests = Annotated[int | None, _option("At most so many requests.")]
Prompt = Annotated[str, _option(f"Prompt tokens: {SIZES}.")]
Output = Annotated[str, _option(f"Output tokens: {SIZES}.")]
WarmUp = Annotated[float, typer.Option(help="First seconds, reported apart.", min=0)]
Api = Annotated[_Api, _option("Which of the two APIs is used.")]
Stream = Annotated[bool, _option("Ask for streamed answers.")]
IgnoreEos = Annotated[bool, _option("Ask vLLM for answers of the full length.")]
Model = Annotated[str | None, _option("Default: the first one served.")]
Tokenizer = Annotated[Path | None, _option("Directory or tokenizer.json; default: as served.")]
ApiKey = Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY")]
Short = Annotated[int, _option("Longest prompt to call short.")]
SloTtft = Annotated[float, _option("Goodput's TTFT, seconds.")]
SloTpot = Annotated[float | None, _option("Goodput's TPOT, seconds.")]
Timeout = Annotated[float, _option("Seconds for a request.")]
Seed = Annotated[int, _option("The same seed, the same requests.")]
Json = Annotated[Path | None, _option("Write results here.")]
Pictures = Annotated[Path | None, _option("Write PNG files into this directory.")]
Csv = Annotated[Path | None, _option("Write one line per request here.")]


def rates(text: str, concurrency: int | None) -> list[float]:
    """Of `--sweep`. Raises ValueError."""
    if concurrency is not None:
        raise ValueError("a sweep is over the rates of an open loop: leave out --concurrency")
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < rate < inf for rate in found):
        raise ValueError(
            f"--sweep takes requests a second over 0, with commas, such as 5,10,20; not {text!r}"
        )
    return found


def check_url(url: str) -> None:
    """Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and parts.netloc:
        return
    example = "http://127.0.0.1:8080" if "://" in url else f"http://{url}"
    raise ValueError(f"{url} is not the URL of a server: write it as {example}")
