"""What is remembered of a request: one frozen record, the source of its log line and metrics."""

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
class Timeline:
    """When a request passed each border, in seconds on the monotonic clock; None: it did not.

    The stages of the TTFT lie between neighbours: read, tokenize, queue, backend.
    """

    arrived: float
    received: float
    tokenized: float | None = None
    dispatched: float | None = None
    first_byte: float | None = None

    def stages(self) -> dict[str, float]:
        """The seconds of each stage that was completed."""
        stages = {"read": self.received - self.arrived}
        if self.tokenized is not None:
            stages["tokenize"] = self.tokenized - self.received
            if self.dispatched is not None:
                stages["queue"] = self.dispatched - self.tokenized
                if self.first_byte is not None:
                    stages["backend"] = self.first_byte - self.dispatched
        return stages

    def ttft(self) -> float | None:
        return None if self.first_byte is None else self.first_byte - self.arrived


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """`status` is what the client was told, 499 when it had left. Times in seconds."""

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
