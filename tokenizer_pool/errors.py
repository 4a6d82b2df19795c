"""The tokenizer pool's errors, by whose fault they are.

TokenizerPoolError
├── InvalidRequest      the client's: 400, with `param` and `code`
├── PoolBusy            the lane's queue is full: 429
├── WorkerFailed        a worker died or hung, also on the second try: 500
└── TokenizerUnavailable  no tokenizer could be loaded from this source
"""


class TokenizerPoolError(Exception):
    """Base of all errors that the tokenizer pool raises on purpose."""


class InvalidRequest(TokenizerPoolError):
    """The body is not a request we can send on. The message tells the client what to change."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class PoolBusy(TokenizerPoolError):
    """The lane's queue is full; `retry_after` is in seconds."""

    def __init__(self, lane: str, retry_after: float) -> None:
        super().__init__(f"the {lane} tokenizer lane is full")
        self.lane = lane
        self.retry_after = retry_after


class WorkerFailed(TokenizerPoolError):
    """A tokenizer worker died or hung with this request, and so did its replacement."""


class TokenizerUnavailable(TokenizerPoolError):
    """The tokenizer of a model cannot be loaded; the message says why and what to do."""
