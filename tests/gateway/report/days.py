"""Request logs for tests: records rendered by the gateway's own code, at chosen times."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from gateway.log import render
from gateway.record import Outcome, RequestRecord

NOW = 1_800_000_000.0
HOUR = 3600.0


def record(ttft: float | None, **changes: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "request_id": "r1",
        "path": "/v1/chat/completions",
        "outcome": Outcome.COMPLETED,
        "status": 200,
        "model": "m",
        "service_class": "short",
        "backend": "short-0",
        "channel": "ids",
        "prompt_tokens": 100,
        "stream": ttft is not None,
        "attempts": 1,
        "stages": {"read": 0.001, "tokenize": 0.002, "queue": 0.01, "backend": 0.05},
        "ttft": ttft,
        "e2e": 1.0,
        "error": "",
    }
    return RequestRecord(**(values | changes))


def line(ttft: float | None, *, ago: float = HOUR, weight: float = 1.0, **changes: Any) -> bytes:
    """A line of the log, `ago` seconds before NOW."""
    document = orjson.loads(render(record(ttft, **changes)))
    document["time"] = NOW - ago
    if weight != 1.0:
        document["weight"] = weight
    return orjson.dumps(document) + b"\n"


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path
