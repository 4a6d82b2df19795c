"""Public request traces as jobs: arrival times and sizes, no text.

Reads the Azure LLM inference traces (CSV: TIMESTAMP, ContextTokens, GeneratedTokens; Patel et
al., Splitwise, ISCA 2024) and Mooncake's (JSON lines: timestamp in ms, input_length,
output_length, hash_ids of 512-token blocks; Qin et al., FAST 2025). No trace is shipped.
Reads the gateway's own request log too.
"""

import csv
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import orjson

from bench.workload import Job

MOONCAKE_BLOCK = 512

LOGGED_ANSWER = 128
"""Output tokens of a logged request whose answer did not tell them."""


FOLDER = "FOREBAY_TRACES"
"""The environment's name for the folder that `find` looks in."""

_NAMED = {
    "azure-conv": "azure_llm_2023_conv.csv",
    "azure-code": "azure_llm_2023_code.csv",
    "mooncake": "mooncake_conversation.jsonl",
}


class UnknownTrace(ValueError):
    """The file is none of the formats that are read here, or the name none that is known."""


def find(name: str) -> Path:
    """A file, or one of the public traces by a short name. Raises UnknownTrace."""
    folder = Path(os.environ.get(FOLDER, "."))
    path = folder / _NAMED[name] if name in _NAMED else Path(name)
    if path.is_file():
        return path
    raise UnknownTrace(
        f"there is no {path}: name a file, or set {FOLDER} to a folder that has one of "
        f"{', '.join(_NAMED.values())} (Azure's are in github.com/Azure/AzurePublicDataset)"
    )


def read(path: Path, limit: int | None = None) -> list[Job]:
    """The first `limit` requests, times in seconds from the first one.

    Requests without a prompt or an answer are left out. Raises UnknownTrace, and OSError.
    """
    rows = _azure(path) if path.suffix == ".csv" else _json_lines(path)
    jobs: list[Job] = []
    for job in rows:
        if limit is not None and len(jobs) >= limit:
            break
        if job.prompt > 0 and job.output > 0:
            jobs.append(job)
    return jobs


def _azure(path: Path) -> Iterator[Job]:
    with path.open(newline="") as file:
        start = None
        for row in csv.DictReader(file):
            try:
                at = _seconds(row["TIMESTAMP"])
                prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            except (KeyError, ValueError) as error:
                raise UnknownTrace(f"{path.name}: {error}") from error
            start = at if start is None else start
            yield Job(at - start, prompt, output)


def _seconds(timestamp: str) -> float:
    # Seven digits of fraction: one more than datetime reads.
    whole, _, fraction = timestamp.partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def _json_lines(path: Path) -> Iterator[Job]:
    with path.open("rb") as file:
        first = file.readline()
    return _request_log(path) if b'"prompt_tokens"' in first else _mooncake(path)


def _request_log(path: Path) -> Iterator[Job]:
    """A line is written when a request ends, which is not the order in which they came."""
    with path.open("rb") as file:
        try:
            rows = [orjson.loads(line) for line in file]
            came = sorted(
                (row["time"] - row["e2e"], row["prompt_tokens"], row.get("output_tokens", 0))
                for row in rows
            )
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise UnknownTrace(f"{path.name}: {error}") from error
    for at, prompt, output in came:
        yield Job(at - came[0][0], prompt, output or LOGGED_ANSWER)


def _mooncake(path: Path) -> Iterator[Job]:
    with path.open("rb") as file:
        for line in file:
            try:
                row = orjson.loads(line)
                sizes = row["input_length"], row["output_length"]
                yield Job(row["timestamp"] / 1000, *sizes, prefix=tuple(row["hash_ids"]))
            except (KeyError, TypeError, orjson.JSONDecodeError) as error:
                raise UnknownTrace(f"{path.name}: {error}") from error
