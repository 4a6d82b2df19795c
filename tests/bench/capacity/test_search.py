"""The fewest engines, in few trials, also where more engines do not always do better."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity.search import NEIGHBOURS, NeverHolds, least


@given(edge=st.integers(1, 3000), guess=st.integers(1, 3000))
def test_the_edge_is_found_exactly_and_in_few_trials(edge: int, guess: int) -> None:
    if edge > 64 * guess:
        guess = edge // 64 + 1
    found = least(lambda number: number >= edge, guess)
    assert found.engines == edge
    assert found.monotone
    assert len(found.tried) <= 2 * log2(max(edge, guess) + 1) + 2 * NEIGHBOURS + 3


@given(st.sets(st.integers(10, 30)), st.integers(1, 40))
def test_from_the_answer_on_every_trial_holds_and_the_one_below_does_not(
    lucky: set[int], guess: int
) -> None:
    """From 31 on everything holds, below 10 nothing, between it is as it comes."""
    found = least(lambda number: number > 30 or number in lucky, guess)
    assert all(held for number, held in found.tried.items() if number >= found.engines)
    assert found.tried.get(found.engines - 1, False) is False
    above = range(found.engines, found.engines + NEIGHBOURS)
    assert all(found.tried[number] for number in above)


def test_one_lucky_number_below_the_edge_is_not_the_answer_and_is_told() -> None:
    found = least(lambda number: number >= 20 or number == 18, 18)
    assert found.engines == 20
    assert not found.monotone


def test_what_never_holds_ends() -> None:
    with pytest.raises(NeverHolds, match="not even"):
        least(lambda number: False, 3)
