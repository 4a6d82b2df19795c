"""What is kept of one request. Times are seconds from the start of the run."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """`intended` is when the request should have started: every latency counts from there.

    `error` is "" for a complete answer, else its kind: `http_429`, a backend error in snake case,
    `incomplete` (the stream ended without its end mark), `error_event`, `cancelled`.
    `output_tokens` is the server's count where it gave one. `gaps` are the times between pieces
    of the answer. `backend` and `stages` are what a Forebay gateway says in its headers.
    """

    number: int
    service_class: str
    warm_up: bool
    intended: float
    sent: float
    ended: float
    status: int = 0
    error: str = ""
    retry_after: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    gaps: tuple[float, ...] = field(default=(), repr=False)
    backend: str = ""
    stages: tuple[tuple[str, float], ...] = ()

    @property
    def ttft(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.intended

    @property
    def e2e(self) -> float:
        return self.ended - self.intended

    @property
    def tpot(self) -> float | None:
        """Mean time of each output token after the first."""
        if self.first_token is None or self.last_token is None or self.output_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.output_tokens - 1)

    @property
    def lateness(self) -> float:
        """How much too late the generator itself was."""
        return self.sent - self.intended
