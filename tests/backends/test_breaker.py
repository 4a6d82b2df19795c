"""When a breaker opens: by number and by share, within its window only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.breaker import Breaker, BreakerSettings

SETTINGS = BreakerSettings(window=10, failures=3, ratio=0.5)


def opened(outcomes: list[tuple[float, bool]], settings: BreakerSettings = SETTINGS) -> list[bool]:
    """Whether each outcome, in order of time, opens the breaker."""
    breaker = Breaker(settings)
    opens = []
    for now, good in outcomes:
        if good:
            breaker.succeeded(now)
        opens.append(not good and breaker.failed(now))
    return opens


def test_it_opens_at_the_number() -> None:
    assert opened([(0, False), (1, False), (2, False)]) == [False, False, True]


def test_successes_hold_it_closed_while_they_are_the_most() -> None:
    good = [(0.0, True)] * 4
    assert opened([*good, *[(1.0, False)] * 4])[4:] == [False, False, False, True]


@pytest.mark.parametrize(("gap", "opens"), [(4.0, True), (6.0, False), (100.0, False)])
def test_old_failures_are_forgotten(gap: float, opens: bool) -> None:
    assert opened([(0, False), (gap, False), (2 * gap, False)])[-1] is opens


def test_a_reset_forgets() -> None:
    breaker = Breaker(SETTINGS)
    assert [breaker.failed(0), breaker.failed(0)] == [False, False]
    breaker.reset()
    assert [breaker.failed(0), breaker.failed(0), breaker.failed(0)] == [False, False, True]


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60))
def test_it_opens_only_by_number_and_share_of_the_last_window(
    steps: list[tuple[float, bool]],
) -> None:
    now, outcomes = 0.0, []
    for gap, good in steps:
        now += gap
        outcomes.append((now, good))
    for index, opens in enumerate(opened(outcomes)):
        at = outcomes[index][0]
        recent = [good for when, good in outcomes[: index + 1] if when > at - SETTINGS.window]
        certain = [good for when, good in outcomes[: index + 1] if when // 5 == at // 5]
        if opens:
            assert recent.count(False) >= SETTINGS.failures
        elif certain and not outcomes[index][1] and not any(recent):
            assert certain.count(False) < SETTINGS.failures
