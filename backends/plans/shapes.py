"""How long a class's prompts are: assumed from its bound, or from recorded traffic.

Traffic is a request log of the gateway's (JSON lines with `prompt_tokens`), Mooncake's trace (JSON
lines with `input_length`) or an Azure LLM trace (CSV with `ContextTokens`). Only lengths are read.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

ASSUMED_SHORT = 100
"""The source calls a pool short whose mean prompt is under 128 tokens."""
ASSUMED_LONG = 2048
"""One full prefill step of a default vLLM."""


FORMATS = (
    "a request log (JSON lines with prompt_tokens), a Mooncake trace (JSON lines with "
    "input_length), or an Azure trace (NAME.csv with ContextTokens)"
)


class UnknownTraffic(ValueError):
    """The file is none of the formats that are read here; the message says why."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A class's prompts in tokens. `requests` is how many were seen: 0 when it is assumed."""

    mean: float
    p95: float
    longest: int
    requests: int = 0

    @property
    def origin(self) -> str:
        return f"{self.requests} recorded requests" if self.requests else "assumed"


def assumed(bound: int | None) -> Shape:
    """The shape of a class with this bound on its prompts (None: it takes the longest)."""
    if bound is None:
        return Shape(ASSUMED_LONG, 4 * ASSUMED_LONG, 16 * ASSUMED_LONG)
    return Shape(min(ASSUMED_SHORT, bound / 2), bound / 2, bound)


def shapes_of(lengths: Iterable[int], bounds: Mapping[str, int | None]) -> dict[str, Shape]:
    """The shape of each class whose prompts occur among these lengths."""
    order = sorted(bounds, key=lambda name: (bounds[name] is None, bounds[name] or 0))
    members: dict[str, list[int]] = {}
    for length in lengths:
        fitting = (name for name in order if length <= (bounds[name] or length))
        if (name := next(fitting, None)) is not None:
            members.setdefault(name, []).append(length)
    return {name: _shape(sorted(found)) for name, found in members.items()}


def read_lengths(path: Path) -> list[int]:
    """The prompt lengths that a file records. Raises UnknownTraffic, and OSError."""
    lengths = _csv(path) if path.suffix == ".csv" else _log(path)
    if not lengths:
        raise UnknownTraffic(f"{path.name}: no request with a prompt in it")
    return lengths


def _shape(lengths: Sequence[int]) -> Shape:
    at_95 = lengths[min(int(0.95 * len(lengths)), len(lengths) - 1)]
    return Shape(sum(lengths) / len(lengths), at_95, lengths[-1], len(lengths))


def _csv(path: Path) -> list[int]:
    with path.open(newline="") as file:
        try:
            lengths = [int(row["ContextTokens"]) for row in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownTraffic(f"{path.name} is not {FORMATS}") from error
    return [length for length in lengths if length > 0]


def _log(path: Path) -> list[int]:
    with path.open("rb") as file:
        try:
            rows = [orjson.loads(line) for line in file if line.strip()]
            name = "input_length" if rows and "input_length" in rows[0] else "prompt_tokens"
            lengths = [row[name] for row in rows]
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise UnknownTraffic(f"{path.name} is not {FORMATS}") from error
    return [length for length in lengths if type(length) is int and length > 0]
