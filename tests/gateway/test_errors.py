"""Every error that a client can be told: status, OpenAI's body, and the hints for a retry."""

import json

import pytest

from backends.errors import (
    ConnectFailed,
    ConnectTimeout,
    FirstTokenTimeout,
    StreamBroken,
    TokenGapTimeout,
    TotalTimeout,
)
from gateway.errors import (
    ClientError,
    EngineBusy,
    Rejected,
    context_length_exceeded,
    render_error,
    render_sse_error,
    to_client_error,
)
from scheduler.events import Reason
from tokenizer_pool.errors import InvalidRequest, PoolBusy, WorkerFailed


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (InvalidRequest("bad", param="messages"), 400, None, None),
        (InvalidRequest("who?", code="model_not_found"), 404, "model_not_found", None),
        (PoolBusy("long", 0.2), 429, "tokenizer_queue_full", "1"),
        (WorkerFailed("died twice"), 500, "tokenizer_failed", None),
        (Rejected(Reason.QUEUE_FULL, "short", 2.4), 429, "queue_full", "3"),
        (Rejected(Reason.EXPIRED, "long", 7.0), 503, "expired", "7"),
        (Rejected(Reason.NO_BACKEND, "long", 5.0), 503, "no_backend", "5"),
        (Rejected(Reason.UNKNOWN_MODEL, "", 5.0), 404, "model_not_found", None),
        (Rejected(Reason.DRAINING, "short", 1.0), 503, "draining", "1"),
        (EngineBusy("a"), 503, "engine_busy", "1"),
        (ConnectFailed("a", "refused"), 502, "backend_connect", None),
        (ConnectTimeout("a", "slow"), 504, "backend_connect", None),
        (FirstTokenTimeout("a", "slow"), 504, "backend_first_token", None),
        (TokenGapTimeout("a", "stalled"), 504, "backend_token_gap", None),
        (TotalTimeout("a", "slow"), 504, "backend_total", None),
        (StreamBroken("a", "lost"), 502, "backend_stream", None),
        (KeyError("a bug of ours"), 500, "internal_error", None),
    ],
)
def test_the_table(
    error: Exception, status: int, code: str | None, retry_after: str | None
) -> None:
    told, pairs, body = render_error(to_client_error(error))
    headers = {name.decode(): value.decode() for name, value in pairs}
    detail = json.loads(body)["error"]
    assert told == status
    assert set(detail) == {"message", "type", "param", "code"}
    assert detail["code"] == code
    assert headers.get("retry-after") == retry_after
    assert ("retry-after-ms" in headers) == (retry_after is not None)
    assert "a bug of ours" not in body.decode(), "our own failures are not the client's to read"


def test_every_rejection_has_an_answer() -> None:
    for reason in Reason:
        assert to_client_error(Rejected(reason, "short", 1.0)).status in (404, 429, 503)


def test_the_context_length_error_has_both_counts() -> None:
    error = context_length_exceeded(1200, 1000)
    assert error.code == "context_length_exceeded"
    assert "1200 tokens" in error.message
    assert "maximum context length is 1000" in error.message


def test_an_error_in_a_stream_is_one_event() -> None:
    event = render_sse_error(ClientError(502, "a line\nand another"))
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
