"""Reads the request log: one JSON line per request, as `gateway.log` writes them.

A line that is not one of ours is counted and passed over: a log that was cut off in the middle of
a line, or that something else wrote to, still has a day's worth of requests in it.
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Line:
    """One ended request. Times in seconds; `weight` is how many requests it stands for."""

    time: float
    service_class: str
    backend: str
    outcome: str
    prompt_tokens: int
    ttft: float | None
    e2e: float
    stages: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(slots=True)
class Log:
    """The lines of some files, one after the other. `unreadable` counts what was passed over."""

    paths: Iterable[Path]
    unreadable: int = 0

    def __iter__(self) -> Iterator[Line]:
        """Raises OSError when a file cannot be read."""
        for path in self.paths:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                for text in file:
                    line = parse(text)
                    if line is None:
                        self.unreadable += 1
                    else:
                        yield line


def parse(text: bytes) -> Line | None:
    """The line, or None when it does not tell of a request."""
    try:
        said: Any = orjson.loads(text)
        ttft = said["ttft"]
        return Line(
            time=float(said["time"]),
            service_class=str(said["service_class"]),
            backend=str(said["backend"]),
            outcome=str(said["outcome"]),
            prompt_tokens=int(said["prompt_tokens"]),
            ttft=None if ttft is None else float(ttft),
            e2e=float(said["e2e"]),
            stages={str(name): float(seconds) for name, seconds in said["stages"].items()},
            weight=float(said.get("weight", 1.0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
