"""The story of one request while it is being told: what its record will say."""

from dataclasses import dataclass

from backends.errors import BackendError
from gateway.errors import ClientError, EngineBusy, Rejected
from gateway.gate import Permit
from gateway.record import Outcome, RequestRecord
from gateway.tracing.context import Trace
from scheduler.events import Reason
from tokenizer_pool.errors import InvalidRequest, PoolBusy
from tokenizer_pool.types import TokenizedPrompt

_REJECTED = {
    Reason.QUEUE_FULL: Outcome.SHED,
    Reason.TENANT_QUEUE_FULL: Outcome.SHED,
    Reason.EXPIRED: Outcome.EXPIRED,
    Reason.UNKNOWN_MODEL: Outcome.INVALID,
}


@dataclass(slots=True)
class Story:
    """Filled in as the request goes along.

    When it passed each border is in seconds on the monotonic clock, None where it did not. The
    stages of the TTFT lie between neighbours: read, tokenize, queue, connect, backend.
    `trace` is its place in a trace, where requests are traced.
    """

    request_id: str
    path: str
    arrived: float
    received: float
    tokenized_at: float | None = None
    dispatched_at: float | None = None
    connected_at: float | None = None
    first_byte_at: float | None = None
    model: str = ""
    service_class: str = ""
    backend: str = ""
    channel: str = ""
    prompt_tokens: int = 0
    stream: bool = False
    attempts: int = 0
    tenant: str = ""
    api_key: str = ""
    output_tokens: int = 0
    trace: Trace | None = None
    status: int = 0
    outcome: Outcome = Outcome.COMPLETED
    error: str = ""
    code: str = ""

    def tokenized(self, prompt: TokenizedPrompt, now: float) -> None:
        self.model = prompt.model
        self.prompt_tokens = prompt.prompt_tokens
        self.stream = prompt.stream
        self.tokenized_at = now

    def dispatched(self, permit: Permit, now: float) -> None:
        """A retry moves the border: waiting for the failed backend counts as queueing."""
        self.attempts += 1
        self.backend = permit.backend
        self.service_class = permit.service_class
        self.dispatched_at = now

    def answered(self, status: int, connected: float, first_byte: float) -> None:
        """The backend began to answer; an error of its own goes to the client as it is."""
        self.status = status
        self.connected_at, self.first_byte_at = connected, first_byte
        if status >= 500:
            self.outcome = Outcome.BACKEND_FAILED
        elif status >= 400:
            self.outcome = Outcome.INVALID

    def failed(self, error: BaseException, status: int, code: str | None = None) -> None:
        self.status, self.code = status, code or ""
        self.error = f"{type(error).__name__}: {error}"
        self.outcome = _outcome(error)
        if isinstance(error, Rejected):
            self.service_class = error.service_class

    def abandoned(self) -> None:
        self.status, self.outcome = 499, Outcome.ABANDONED

    def stages(self) -> dict[str, float]:
        """The seconds of each stage that was completed."""
        stages = {"read": self.received - self.arrived}
        if self.tokenized_at is not None:
            stages["tokenize"] = self.tokenized_at - self.received
            if self.dispatched_at is not None:
                stages["queue"] = self.dispatched_at - self.tokenized_at
                if self.connected_at is not None and self.first_byte_at is not None:
                    stages["connect"] = self.connected_at - self.dispatched_at
                    stages["backend"] = self.first_byte_at - self.connected_at
        return stages

    def record(self, now: float) -> RequestRecord:
        """A TTFT is told of streams only: a whole answer's first byte comes with its last."""
        stages, ttft = self.stages(), None
        if not self.stream or self.status >= 400:
            stages.pop("backend", None)
        elif self.first_byte_at is not None:
            ttft = self.first_byte_at - self.arrived
        return RequestRecord(
            self.request_id,
            self.path,
            self.outcome,
            self.status,
            self.model,
            self.service_class,
            self.backend,
            self.channel,
            self.prompt_tokens,
            self.stream,
            self.attempts,
            stages,
            ttft,
            now - self.arrived,
            self.error,
            self.tenant,
            self.api_key,
            self.output_tokens,
            self.code,
        )


def _outcome(error: BaseException) -> Outcome:
    match error:
        case Rejected():
            return _REJECTED.get(error.reason, Outcome.UNAVAILABLE)
        case PoolBusy():
            return Outcome.SHED
        case BackendError() | EngineBusy():
            return Outcome.BACKEND_FAILED
        case InvalidRequest():
            return Outcome.INVALID
        case ClientError():
            return Outcome.INVALID if error.status < 500 else Outcome.UNAVAILABLE
    return Outcome.INTERNAL
