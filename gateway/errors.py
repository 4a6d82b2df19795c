"""From errors to HTTP, in one table. Every error a client can see names what to do.

The body is OpenAI's: `{"error": {"message", "type", "param", "code"}}`, or Anthropic's where its
clients ask. Hints for retries are the ones the official clients obey: `retry-after`,
`retry-after-ms`, `x-should-retry`.
"""

import math
from collections.abc import Sequence

import orjson

from backends.errors import BackendError, ConnectTimeout, PhaseTimeout
from scheduler.events import Reason
from tokenizer_pool.errors import InvalidRequest, PoolBusy, WorkerFailed

_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
# The same request would fail in the same way: two workers died of it, it took all the time there
# is, or it met a bug of ours.
_POINTLESS = frozenset({"internal_error", "tokenizer_failed", "backend_total"})
_JSON = (b"content-type", b"application/json")
NO_RETRY = (b"x-should-retry", b"false")


class ClientError(Exception):
    """An answer to the client that is not the model's. `retry_after` is in seconds; `headers` are
    those besides it."""

    headers: Sequence[tuple[bytes, bytes]] = ()

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def carrying(self, headers: Sequence[tuple[bytes, bytes]]) -> "ClientError":
        """This error, with further headers."""
        self.headers = headers
        return self


class Rejected(Exception):
    """The scheduler would not take the ticket. `retry_after` is in seconds."""

    def __init__(self, reason: Reason, service_class: str, retry_after: float) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.service_class = service_class
        self.retry_after = retry_after


class EngineBusy(Exception):
    """vLLM answered 503: it takes no more now, and a retry elsewhere may find room."""

    def __init__(self, backend: str) -> None:
        super().__init__(f"backend {backend} is busy")
        self.backend = backend


_REJECTIONS: dict[Reason, tuple[int, str]] = {
    Reason.QUEUE_FULL: (429, "the queue for {cls} prompts is full; retry after the time given"),
    Reason.TENANT_QUEUE_FULL: (
        429,
        "your share of the queue for {cls} prompts is full; retry later",
    ),
    Reason.EXPIRED: (503, "no engine could take this {cls} prompt in time; retry later"),
    Reason.NO_BACKEND: (503, "no engine for this model is ready; retry after the time given"),
    Reason.UNKNOWN_MODEL: (404, "no engine serves this model; GET /v1/models lists those served"),
    Reason.DRAINING: (503, "this gateway is shutting down; send the request again"),
}


def to_client_error(error: BaseException) -> ClientError:
    """What a client is told of any error that a request can meet."""
    match error:
        case ClientError():
            return error
        case InvalidRequest():
            return _invalid(error)
        case PoolBusy():
            message = "too many prompts wait for the tokenizer; retry after the time given"
            return ClientError(
                429, message, code="tokenizer_queue_full", retry_after=error.retry_after
            )
        case Rejected():
            return _rejected(error)
        case EngineBusy():
            message = "the engines take no more requests now; retry after the time given"
            return ClientError(503, message, code="engine_busy", retry_after=1.0)
        case WorkerFailed():
            message = "the prompt could not be tokenized; retry, and report it if it fails again"
            return ClientError(500, message, code="tokenizer_failed")
        case BackendError():
            return _backend_failed(error)
    message = "Forebay failed on this request; its log has the reason under the x-request-id"
    return ClientError(500, message, code="internal_error")


def context_length_exceeded(prompt: int, limit: int, param: str = "messages") -> ClientError:
    """OpenAI's error for a prompt that does not fit, from the exact count (tokens)."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your prompt has "
        f"{prompt} tokens, and the answer needs at least one. Shorten the prompt."
    )
    return ClientError(400, message, code="context_length_exceeded", param=param)


def model_not_known_yet(unexplored: list[str]) -> ClientError:
    """Nobody serves the model, but not every backend has said what it serves."""
    names = ", ".join(unexplored)
    message = f"no engine is known to serve this model yet; not answered so far: {names}; retry"
    return ClientError(503, message, code="no_backend", retry_after=1.0)


def render_error(
    error: ClientError, *, anthropic: bool = False
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of an error answer."""
    headers = [_JSON, *error.headers]
    if error.retry_after is not None:
        seconds = max(1, math.ceil(error.retry_after))
        headers.append((b"retry-after", b"%d" % seconds))
        headers.append((b"retry-after-ms", b"%d" % math.ceil(error.retry_after * 1000)))
    elif error.code in _POINTLESS:
        headers.append(NO_RETRY)
    return error.status, headers, _anthropic_body(error) if anthropic else _body(error)


def render_sse_error(error: ClientError, *, anthropic: bool = False) -> bytes:
    """The same error as a server-sent event, for a stream whose head is already out."""
    return sse_error(_anthropic_body(error) if anthropic else _body(error), anthropic=anthropic)


def sse_error(body: bytes, *, anthropic: bool = False) -> bytes:
    """An error's body as a server-sent event. Anthropic's clients know errors by their name."""
    return b"event: error\ndata: %b\n\n" % body if anthropic else b"data: %b\n\n" % body


def _anthropic_body(error: ClientError) -> bytes:
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.message}})


def _body(error: ClientError) -> bytes:
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "api_error")
    detail = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return orjson.dumps({"error": detail})


def _invalid(error: InvalidRequest) -> ClientError:
    if error.code != "model_not_found":
        return ClientError(400, error.message, code=error.code, param=error.param)
    message = f"{error.message} GET /v1/models lists those served."
    return ClientError(404, message, code=error.code, param=error.param)


def _rejected(error: Rejected) -> ClientError:
    status, message = _REJECTIONS[error.reason]
    retry_after = None if status == 404 else error.retry_after
    code = "model_not_found" if status == 404 else error.reason.value
    message = message.format(cls=error.service_class or "such")
    return ClientError(status, message, code=code, retry_after=retry_after)


def _backend_failed(error: BackendError) -> ClientError:
    slow = isinstance(error, ConnectTimeout | PhaseTimeout)
    what = "too slow" if slow else "failed"
    message = f"the engine {what} in phase {error.phase}; send the request again"
    return ClientError(504 if slow else 502, message, code=f"backend_{error.phase}")
