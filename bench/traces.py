"""Recorded traffic as Jobs: when requests came, how long they were, what they had in common.

Reads Azure's CSV (Splitwise, ISCA 2024), Mooncake's JSON lines (FAST 2025) and Forebay's own
request log. Not here: how fast they are played (bench.workload.at_rate).
"""

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.workload import Job

BLOCK = 512
"""The tokens that one of Mooncake's `hash_ids`, and so an entry of Job.prefix, stands for."""

ANSWER = 128
"""Output tokens of a request whose record does not tell them."""


class UnknownTrace(ValueError):
    """The file is none of the known formats, or one of its lines is broken."""


def read_trace(path: Path) -> list[Job]:
    """All requests in the order of their arrival, the first one at 0. Raises UnknownTrace."""
    with path.open() as file:
        try:
            jobs = _csv(file) if path.suffix == ".csv" else _json_lines(file)
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownTrace(f"{path}: {type(error).__name__} {error}") from error
    if not jobs:
        raise UnknownTrace(f"{path}: no requests")
    jobs.sort(key=lambda job: job.at)
    start = jobs[0].at
    return [replace(job, at=job.at - start) for job in jobs]


def _csv(lines: Iterable[str]) -> list[Job]:
    return [_azure(row) for row in csv.DictReader(lines)]


def _json_lines(lines: Iterable[str]) -> list[Job]:
    records = [json.loads(line) for line in lines if line.strip()]
    return [_reader(record)(record) for record in records]


def _reader(record: dict[str, Any]) -> Callable[[dict[str, Any]], Job]:
    return _mooncake if "input_length" in record else _request_log


def _azure(row: dict[str, str]) -> Job:
    at = datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC).timestamp()
    return _job(at, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _mooncake(record: dict[str, Any]) -> Job:
    job = _job(record["timestamp"] / 1000, record["input_length"], record["output_length"])
    return replace(job, prefix=tuple(record["hash_ids"]))


def _request_log(record: dict[str, Any]) -> Job:
    """A line is written at a request's end; `e2e` before that it came."""
    came = record["time"] - record["e2e"]
    return _job(came, record["prompt_tokens"], record.get("output_tokens") or ANSWER)


def _job(at: float, prompt: int, output: int) -> Job:
    """Traces have requests of no tokens; one is the least that an engine can serve."""
    return Job(at, max(1, prompt), max(1, output))
