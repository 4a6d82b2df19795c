"""The pace of an answer, by its pieces and their times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pace import ITL_BUCKETS, Pace

EVENT = b'data: {"id":"chatcmpl-0","choices":[{"delta":{"content":"' + b"x" * 120 + b'"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def pace_of(*pieces: tuple[float, bytes]) -> Pace:
    pace = Pace()
    for at, data in pieces:
        pace.came(data, at)
    return pace


def test_tokens_that_come_one_by_one() -> None:
    pace = pace_of(*((10.0 + 0.02 * n, EVENT) for n in range(11)), (10.2, DONE))
    assert pace.events == 12
    assert pace.per_token == pytest.approx(0.02)
    assert sum(pace.gaps) == 11


def test_tokens_that_come_together_are_each_counted() -> None:
    pace = pace_of((1.0, EVENT), (1.1, EVENT * 4), (1.2, EVENT * 4), (1.2, DONE))
    assert pace.per_token == pytest.approx(0.2 / 8)


def test_of_an_answer_too_short_nothing_is_said() -> None:
    assert pace_of().per_token is None
    assert pace_of((1.0, EVENT), (1.0, DONE)).per_token is None


def test_a_gap_is_counted_in_its_bucket() -> None:
    pace = pace_of((1.0, EVENT), (1.03, EVENT), (1.03, EVENT), (9.0, EVENT))
    counted = dict(zip((*ITL_BUCKETS, float("inf")), pace.gaps, strict=True))
    assert {bound for bound, number in counted.items() if number} == {0.035, 0.001, float("inf")}


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50))
def test_gaps_add_up_to_the_time_between_first_and_last(gaps: list[float]) -> None:
    at, pieces = 1.0, [(1.0, EVENT)]
    for gap in gaps:
        at += gap
        pieces.append((at, EVENT))
    pace = pace_of(*pieces)
    assert pace.waited == pytest.approx(sum(gaps))
    assert sum(pace.gaps) == len(gaps)
