"""The figures: each target's costs, the engine's own taken off, medians of the rounds.

A figure is made within each round, between loads and targets that followed each other, and then
the median is taken, so that a machine that slows down for a round moves no figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from bench.overhead.loads import Result
from bench.overhead.measure import Found
from bench.overhead.source import INSTANT, Source
from bench.overhead.stand import DIRECT
from bench.scenarios import Report

OURS = "forebay"
NOT_OF_THE_GATEWAY = {
    "requests_per_s": "the engine's own rate, behind whatever gateway",
    "core_share": "of a gateway that waits for its engine: no sign of what it could do",
    "added_ttft_ms": "a difference between two runs of the engine, whose own times move by more: "
    "see the spread",
    "cpu_us_per_request": "holds what the gateway does beside requests, which are few here",
    "prompts": "such an engine does not count which came as ids",
}
"""What figures are where the engine is a real one and not the instant one."""

Round = Mapping[str, Result]


def report(found: Found, not_run: Sequence[str], source: Source = INSTANT) -> Report:
    """`<peer>_<figure>` for each target, and Forebay's also without the prefix."""
    figures: dict[str, dict[str, list[float]]] = {}
    for target, loads in found.rounds.items():
        rounds = [
            _figures(_round(loads, number), _round(found.rounds[DIRECT], number))
            for number in range(len(loads["one"]))
        ]
        figures[target] = {name: [figure[name] for figure in rounds] for name in rounds[0]}
    for target, sizes in found.memory.items():
        figures[target]["rss_mb"] = [sum(sizes) / 1e6]
    summary = {
        f"{target}_{name}".replace("-", "_"): round(median(values), 3)
        for target, named in figures.items()
        for name, values in named.items()
    }
    ours = {name: summary[f"{OURS}_{name}"] for name in figures.get(OURS, {})}
    detail: dict[str, Any] = {
        "not_run": list(not_run),
        "engine": source.name,
        "not_of_the_gateway": {} if source.instant else NOT_OF_THE_GATEWAY,
        "prompts_by_ids": found.by_ids,
        "prompts_by_text": found.by_text,
        "spread": _spread(figures),
        "rss_bytes": found.memory,
        "rounds": {
            target: {
                name: [asdict(result) for result in results] for name, results in loads.items()
            }
            for target, loads in found.rounds.items()
        },
    }
    return Report(ours | summary, detail)


def _round(loads: Mapping[str, Sequence[Result]], number: int) -> dict[str, Result]:
    return {name: results[number] for name, results in loads.items()}


def _figures(target: Round, direct: Round) -> dict[str, float]:
    """The engine itself adds nothing and has no CPU counted: of `direct` only the rate says
    something. `core_share` is how much of its core a gateway used: where it is well under 1, engine
    and client were what `requests_per_s` could not pass."""
    many, few = target["many_chunks"], target["few_chunks"]
    per_stream, per_chunk = _costs(few, many)
    one, streams = target["one"], target["streams"]
    return {
        "added_ttft_ms_p50": one.beyond_p50 - direct["one"].beyond_p50,
        "added_ttft_ms_p50_c64": streams.beyond_p50 - direct["streams"].beyond_p50,
        "added_ttft_ms_p99_c64": streams.beyond_p99 - direct["streams"].beyond_p99,
        "cpu_us_per_request": target["saturated"].cpu_us,
        "cpu_us_per_stream": per_stream,
        "cpu_us_per_chunk": per_chunk,
        "requests_per_s": target["saturated"].rate,
        "core_share": target["saturated"].cpu / target["saturated"].seconds,
    }


def _costs(few: Result, many: Result) -> tuple[float, float]:
    """Microseconds of CPU for each stream and for each chunk, from two runs: `cpu = stream x
    requests + chunk x events` in both. The role and [DONE] are events, too."""
    determinant = few.requests * many.events - many.requests * few.events
    stream = (few.cpu * many.events - many.cpu * few.events) / determinant
    chunk = (few.requests * many.cpu - many.requests * few.cpu) / determinant
    return stream * 1e6, chunk * 1e6


def _spread(figures: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Lowest and highest of the rounds."""
    return {
        f"{target}_{name}": [round(min(values), 3), round(max(values), 3)]
        for target, named in figures.items()
        for name, values in named.items()
    }
