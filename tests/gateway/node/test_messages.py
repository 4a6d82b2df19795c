"""Border types survive the wire unchanged."""

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import BackendSpec, Channel, ServedModel
from gateway.directory import Row, Standing
from gateway.node.messages import (
    ROW,
    answer_from_wire,
    answer_to_wire,
    report_from_wire,
    report_to_wire,
    ticket_from_wire,
    ticket_to_wire,
)
from scheduler.events import (
    Abandoned,
    Cancel,
    Dispatch,
    Failed,
    Finished,
    FirstToken,
    Progress,
    Reason,
    Reject,
)
from scheduler.model import Ticket

NAMES = st.text(max_size=10)


def over_the_wire(values: list[Any]) -> list[Any]:
    return orjson.loads(orjson.dumps(values))  # type: ignore[no-any-return]


@given(
    st.builds(
        Ticket,
        id=NAMES,
        model=NAMES,
        prompt_tokens=st.integers(0, 10**6),
        prefix=st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple),
        avoid=st.frozensets(NAMES, max_size=3),
        answer_by=st.none() | st.floats(0, 1e9),
        priority=st.integers(-5, 5),
        tenant=NAMES,
    )
)
def test_tickets(ticket: Ticket) -> None:
    assert ticket_from_wire(over_the_wire(ticket_to_wire(ticket))) == ticket


@pytest.mark.parametrize(
    "event",
    [FirstToken("1"), Progress("1", 7), Finished("1"), Failed("1", busy=True), Abandoned("1")],
)
def test_reports(event: Any) -> None:
    assert report_from_wire(over_the_wire(report_to_wire(event))) == event


@pytest.mark.parametrize(
    "answer",
    [
        Dispatch("1", "b", "short", cause=""),
        *(Reject("1", reason, 1.5, "long", cause="") for reason in Reason),
        Cancel("1", cause=""),
    ],
)
def test_answers(answer: Any) -> None:
    tag, *values = over_the_wire(answer_to_wire(answer))
    assert (tag, answer_from_wire(values)) == ("answer", answer)


def test_rows_in_full() -> None:
    spec = BackendSpec("b", "http://h:1", frozenset({"long"}), 3, 0.5, "key")
    standing = Standing(Channel.IDS, Channel.TEXT, "why")
    row = Row(spec, True, (ServedModel("m", "/root", 8192, "parent"),), {"m": standing})
    assert all(getattr(row, f.name) != f.default for f in dataclasses.fields(row))
    assert ROW.validate_python(over_the_wire(ROW.dump_python(row, mode="json"))) == row
