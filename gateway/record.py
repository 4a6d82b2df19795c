"""What is remembered of a request: one record, the source of its log line and metrics."""

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """How a request ended; each has exactly one."""

    COMPLETED = "completed"
    INVALID = "invalid"
    SHED = "shed"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"
    ABANDONED = "abandoned"
    BACKEND_FAILED = "backend_failed"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


@dataclass(slots=True)
class RequestRecord:
    """`status` is what the client was told, 499 when it had left. Times in seconds. `api_key` is
    the key's name, which is no secret. `output_tokens` are those that the answer told, else the
    events of a stream; 0 where neither is known. `code` is that of the error that
    the client was told.

    Nobody changes it; it is not frozen because that would make it eight times as costly to make.
    """

    request_id: str
    path: str
    outcome: Outcome
    status: int
    model: str
    service_class: str
    backend: str
    channel: str
    prompt_tokens: int
    stream: bool
    attempts: int
    stages: dict[str, float]
    ttft: float | None
    e2e: float
    error: str
    tenant: str = ""
    api_key: str = ""
    output_tokens: int = 0
    code: str = ""
