"""`traceparent`: what is taken from a caller, and what is told to a backend."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracing.context import begin

CALLER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736


def test_a_callers_trace_is_continued_with_a_span_of_our_own() -> None:
    trace = begin(CALLER, sample=0.0)
    assert (trace.trace_id, trace.parent, trace.sampled) == (TRACE, 0x00F067AA0BA902B7, True)
    version, told, span, flags = trace.header().split("-")
    assert (version, told, flags) == ("00", CALLER.decode().split("-")[1], "01")
    assert int(span, 16) == trace.span_id != trace.parent


def test_a_caller_that_does_not_sample_is_heeded() -> None:
    trace = begin(CALLER[:-1] + b"0", sample=1.0)
    assert not trace.sampled
    assert trace.header().endswith("-00")


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    ],
)
def test_without_a_valid_caller_a_trace_begins_here(header: bytes | None) -> None:
    trace = begin(header, sample=1.0)
    assert trace.parent == 0
    assert trace.sampled
    assert trace.trace_id not in (0, TRACE)


def test_a_later_version_may_say_more() -> None:
    assert begin(b"01" + CALLER[2:] + b"-more", sample=0.0).trace_id == TRACE


def test_a_share_of_the_traces_is_sampled() -> None:
    taken = sum(begin(None, sample=0.25).sampled for _ in range(2000))
    assert 400 < taken < 600
    assert not any(begin(None, sample=0.0).sampled for _ in range(100))


@given(st.binary(max_size=80))
def test_no_header_can_break_it(header: bytes) -> None:
    trace = begin(header, sample=1.0)
    assert begin(trace.header().encode(), sample=0.0).trace_id == trace.trace_id
