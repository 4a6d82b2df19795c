"""The source's rule for shares of GPU memory, and what is remembered for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tuning.memory import LEAST, MOST, Heard, History, Marks, advise

MARKS = Marks(high=1.0, low=0.33)
SLOW, FINE, FAST = [1.2] * 10, [0.6] * 10, [0.1] * 10


@pytest.mark.parametrize(
    ("present", "ratios", "wanted"),
    [
        (0.85, SLOW, 0.80),
        (0.72, SLOW, 0.70),
        (0.70, SLOW, 0.70),
        (0.60, SLOW, 0.60),
        (0.92, SLOW, 0.87),
        (0.85, FAST, 0.88),
        (0.89, FAST, 0.90),
        (0.90, FAST, 0.90),
        (0.92, FAST, 0.92),
        (0.85, FINE, 0.85),
        (0.85, SLOW[:9], 0.85),
        (0.85, SLOW + FAST, 0.88),
        (0.85, FAST + SLOW, 0.80),
    ],
)
def test_the_rule(present: float, ratios: list[float], wanted: float) -> None:
    advice = advise("b", present, ratios, MARKS)
    assert advice.wanted == wanted
    assert advice.changes == (wanted != present)


def test_the_reason_has_the_numbers() -> None:
    assert advise("b", 0.85, SLOW, MARKS).why == (
        "the last 10 TTFTs are 1.20 of their target on average, over 1"
    )
    assert advise("b", 0.85, SLOW[:3], MARKS).why == "3 of 10 TTFTs so far"


@settings(deadline=None)
@given(st.floats(0.5, 1.0), st.lists(st.floats(0.0, 5.0), min_size=10, max_size=30))
def test_no_advice_leaves_the_bounds_or_moves_further_than_the_rule(
    present: float, ratios: list[float]
) -> None:
    wanted = advise("b", present, ratios, MARKS).wanted
    assert present - 0.0551 <= wanted <= present + 0.0351
    assert wanted >= min(present, LEAST)
    assert wanted <= max(present, MOST)


def test_history_keeps_the_last_of_each_backend_and_forgets() -> None:
    history = History()
    for number in range(5):
        history.add(Heard("a", "short", number / 10), number / 10, kept=3)
    history.add(Heard("b", "long", 2.0), 0.4, kept=3)
    assert history.ratios("a") == [0.2, 0.3, 0.4]
    assert history.group("a").answers == 3
    history.add(Heard("a", "short", 0.9), 0.9, kept=2)
    assert history.ratios("a") == [0.4, 0.9]
    history.forget("a")
    assert history.ratios("a") == []
    history.keep({"a"})
    assert history.ratios("b") == []
