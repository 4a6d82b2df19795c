"""The story of one request while it is being told: what its record will say."""

from dataclasses import dataclass

from backends.errors import BackendError
from gateway.errors import ClientError, EngineBusy, Rejected
from gateway.gate import Permit
from gateway.http_types import Request
from gateway.record import Outcome, RequestRecord, Timeline
from scheduler.events import Reason
from tokenizer_pool.errors import InvalidRequest, PoolBusy
from tokenizer_pool.types import TokenizedPrompt

_REJECTED = {
    Reason.QUEUE_FULL: Outcome.SHED,
    Reason.EXPIRED: Outcome.EXPIRED,
    Reason.UNKNOWN_MODEL: Outcome.INVALID,
}


@dataclass(slots=True)
class Story:
    """Filled in as the request goes along; the clock is the monotonic one."""

    request_id: str
    path: str
    timeline: Timeline
    model: str = ""
    service_class: str = ""
    backend: str = ""
    channel: str = ""
    prompt_tokens: int = 0
    stream: bool = False
    attempts: int = 0
    status: int = 0
    outcome: Outcome = Outcome.COMPLETED
    error: str = ""

    @classmethod
    def begin(cls, request: Request, request_id: str) -> "Story":
        return cls(request_id, request.path, Timeline(request.arrived, request.received))

    def tokenized(self, prompt: TokenizedPrompt, now: float) -> None:
        self.model = prompt.model
        self.prompt_tokens = prompt.prompt_tokens
        self.stream = prompt.stream
        self.timeline.tokenized = now

    def dispatched(self, permit: Permit, now: float) -> None:
        """A retry moves the border: waiting for the failed backend counts as queueing."""
        self.attempts += 1
        self.backend = permit.backend
        self.service_class = permit.service_class
        self.timeline.dispatched = now

    def answered(self, status: int, first_byte: float) -> None:
        """The backend began to answer; an error of its own goes to the client as it is."""
        self.status = status
        self.timeline.first_byte = first_byte
        if status >= 500:
            self.outcome = Outcome.BACKEND_FAILED
        elif status >= 400:
            self.outcome = Outcome.INVALID

    def failed(self, error: BaseException, status: int) -> None:
        self.status = status
        self.error = f"{type(error).__name__}: {error}"
        self.outcome = _outcome(error)
        if isinstance(error, Rejected):
            self.service_class = error.service_class

    def abandoned(self) -> None:
        self.status, self.outcome = 499, Outcome.ABANDONED

    def record(self, now: float) -> RequestRecord:
        """A TTFT is told of streams only: a whole answer's first byte comes with its last."""
        stages, ttft = self.timeline.stages(), self.timeline.ttft()
        if not self.stream or self.status >= 400:
            stages.pop("backend", None)
            ttft = None
        return RequestRecord(
            request_id=self.request_id,
            path=self.path,
            outcome=self.outcome,
            status=self.status,
            model=self.model,
            service_class=self.service_class,
            backend=self.backend,
            channel=self.channel,
            prompt_tokens=self.prompt_tokens,
            stream=self.stream,
            attempts=self.attempts,
            stages=stages,
            ttft=ttft,
            e2e=now - self.timeline.arrived,
            error=self.error,
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
