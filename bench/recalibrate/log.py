"""The request log as what engines were asked: when each request was sent, began, ended. Two passes
over it, so that a week's log needs no more memory than the busiest parts of it."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

SLOT = 600.0
"""Seconds of a part of the log. Parts are taken whole: what ran beside a request matters."""


_SAMPLED = b'"weight":'
"""Inside a JSON string the quotes would be escaped: only a sampled line has this."""


class NothingLogged(ValueError):
    """The log has no requests to learn from."""


class SampledLog(ValueError):
    """The log has only a part of the requests."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that completed. Times are Unix times; `first` is None for an answer that was not
    streamed, `output` 0 where the answer did not tell."""

    backend: str
    service_class: str
    prompt: int
    output: int
    arrived: float
    sent: float
    first: float | None
    ended: float


def busiest(paths: Sequence[Path], since: float, most: int) -> list[list[Seen]]:
    """The fullest parts since then with `most` requests together, in the order of time.

    Raises NothingLogged, SampledLog, and OSError.
    """
    counts = Counter(int(seen.ended // SLOT) for seen in _lines(paths, since))
    chosen: set[int] = set()
    total = 0
    for slot, count in counts.most_common():
        if chosen and total + count > most:
            break
        chosen.add(slot)
        total += count
    if not chosen:
        raise NothingLogged("the log has no completed request with a backend in this span")
    parts: dict[int, list[Seen]] = {slot: [] for slot in sorted(chosen)}
    for seen in _lines(paths, since):
        if (slot := int(seen.ended // SLOT)) in parts:
            parts[slot].append(seen)
    return [sorted(part, key=lambda seen: seen.arrived) for part in parts.values()]


def _lines(paths: Iterable[Path], since: float) -> Iterator[Seen]:
    for path in paths:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for text in file:
                if _SAMPLED in text:
                    raise SampledLog(
                        f"{path.name} is a sample (request_log_sample): what ran beside a request "
                        f"is not in it; log all of them for the span to learn from"
                    )
                seen = parse(text)
                if seen is not None and seen.ended >= since:
                    yield seen


def parse(text: bytes) -> Seen | None:
    """None for a line that is cut off, or whose request did not complete."""
    try:
        line: Any = orjson.loads(text)
        stages, ttft, ended = line["stages"], line["ttft"], float(line["time"])
        arrived = ended - float(line["e2e"])
        before = sum(stages.get(name, 0.0) for name in ("read", "tokenize", "queue", "connect"))
        if line["outcome"] != "completed" or not line["backend"] or line["prompt_tokens"] < 1:
            return None
        return Seen(
            backend=line["backend"],
            service_class=line["service_class"],
            prompt=int(line["prompt_tokens"]),
            output=int(line.get("output_tokens", 0)),
            arrived=arrived,
            sent=arrived + before,
            first=None if ttft is None else arrived + float(ttft),
            ended=ended,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
