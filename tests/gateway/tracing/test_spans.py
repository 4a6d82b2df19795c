"""A request's spans, from its record."""

from itertools import pairwise
from typing import Any

import pytest

from gateway.record import Outcome
from gateway.tracing.spans import NANOSECONDS, request_span, stage_spans
from tests.gateway.report.days import record

END = 1_800_000_000 * NANOSECONDS


def test_the_stages_lie_one_after_the_other_inside_the_request() -> None:
    stages = {"read": 0.1, "tokenize": 0.2, "queue": 0.3, "connect": 0.1, "backend": 0.2}
    told = record(0.9, stages=stages, e2e=2.0)
    whole = request_span(told, END)
    assert (whole.start, whole.end) == (END - 2 * NANOSECONDS, END)
    spans = list(stage_spans(told, whole))
    assert [span.name for span in spans] == [f"forebay.{name}" for name in (*stages, "stream")]
    assert spans[0].start == whole.start
    assert spans[-1].end == whole.end
    for one, next_one in pairwise(spans):
        assert one.end == next_one.start
    assert spans[2].end - spans[2].start == pytest.approx(0.3 * NANOSECONDS, abs=2)


def test_it_is_described_by_the_conventions() -> None:
    whole = request_span(record(0.9), END)
    assert whole.name == "chat m"
    wanted: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 100,
        "http.response.status_code": 200,
        "forebay.class": "short",
        "forebay.backend": "short-0",
        "forebay.channel": "ids",
    }
    assert wanted.items() <= whole.attributes.items()
    assert whole.error == ""


def test_what_we_or_a_backend_failed_is_an_error_and_a_client_that_left_is_none() -> None:
    failed = record(
        None, outcome=Outcome.BACKEND_FAILED, status=502, error="ConnectFailed: refused"
    )
    span = request_span(failed, END)
    assert (span.error, span.attributes["error.type"]) == (
        "ConnectFailed: refused",
        "ConnectFailed",
    )
    assert request_span(record(None, outcome=Outcome.ABANDONED, status=499), END).error == ""


def test_of_a_request_that_was_refused_unread_nothing_is_made_up() -> None:
    told = record(None, model="", service_class="", backend="", channel="", stages={"read": 0.1})
    whole = request_span(told, END)
    assert whole.name == "chat"
    assert not {"gen_ai.request.model", "forebay.backend"} & set(whole.attributes)
    assert [span.name for span in stage_spans(told, whole)] == ["forebay.read"]
