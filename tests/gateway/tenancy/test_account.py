"""One gateway's side of a quota, in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenancy.account import Account, Answer, duration
from gateway.tenancy.window import SLOT, SPAN, Window, until


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 20)), max_size=200))
def test_in_no_sixty_seconds_is_more_spent_than_the_limit(offered: list[tuple[float, int]]) -> None:
    account, now = Account(50), 0.0
    spent: list[tuple[float, int]] = []
    for gap, amount in offered:
        now += gap
        if account.room(amount, now):
            account.spend(amount, now)
            spent.append((now, amount))
    for start, _ in spent:
        assert sum(n for at, n in spent if start <= at < start + SPAN) <= 50


def test_a_refused_amount_is_there_after_the_wait_that_was_told() -> None:
    account = Account(10)
    for second in range(5):
        account.spend(2, float(second))
    assert not account.room(3, 5.0)
    wait = account.wait(3, 5.0)
    assert not account.room(3, 5.0 + wait - SLOT)
    assert account.room(3, 5.0 + wait)


def test_what_settles_lower_can_be_spent_again() -> None:
    account = Account(100)
    account.spend(80, 0.0)
    assert not account.room(30, 0.0)
    account.spend(-70, 1.0)
    assert account.room(30, 1.0)


def test_a_shared_account_spends_only_what_it_was_handed_out() -> None:
    account = Account(100)
    account.ask(0.0)
    account.answered(Answer(grant=10, target=10, left=100, replicas=3), 0.0)
    assert account.room(10, 0.0)
    account.spend(10, 0.0)
    assert not account.room(1, 0.0)
    assert account.wait(1, 0.0) < 1.0, "the others have some"
    assert account.ask(0.1).spent == 10


def test_what_is_not_needed_goes_back_before_redis_hears_of_it() -> None:
    account = Account(100)
    account.ask(0.0)
    account.answered(Answer(grant=60, target=10, left=100, replicas=2), 0.0)
    assert account.ask(0.1).held == 10
    assert not account.room(11, 0.1)


def test_without_redis_a_gateway_has_its_share_less_what_it_spent() -> None:
    account = Account(90)
    account.ask(0.0)
    account.answered(Answer(grant=30, target=30, left=90, replicas=3), 0.0)
    account.spend(20, 0.0)
    account.ask(0.1)
    account.lost()
    assert account.room(10, 1.0)
    assert not account.room(11, 1.0)
    account.spend(10, 1.0)
    ask = account.ask(2.0)
    assert (ask.spent, ask.held) == (30, 0), "what Redis may not have heard is said again"


def test_a_redis_that_forgot_is_told_what_was_spent() -> None:
    account = Account(90)
    account.ask(0.0)
    account.answered(Answer(90, 90, 90, 1, memory="first"), 0.0)
    account.spend(40, 0.0)
    account.ask(0.1)
    account.answered(Answer(0, 50, 50, 1, memory="first"), 0.1)
    account.ask(1.0)
    account.answered(Answer(0, 90, 90, 1, memory="second", young=True), 1.0)
    assert not account.shared
    assert account.ask(1.1).spent == 40


def test_a_client_sees_its_limit_what_is_left_and_when_it_is_whole() -> None:
    account = Account(10)
    account.spend(4, 100.0)
    view = account.view(110.0)
    assert (view.limit, view.remaining) == (10, 6)
    assert 50.0 <= view.reset <= 50.0 + SLOT


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0ms"), (0.1201, "121ms"), (1, "1s"), (8.2, "9s"), (60, "1m0s")]
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_window_gives_back_in_the_order_of_spending() -> None:
    window = Window()
    window.add(5, 0.0)
    window.add(7, 10.0)
    assert until(5, window.returns(20.0)) == pytest.approx(SPAN + SLOT - 20)
    assert until(6, window.returns(20.0)) == pytest.approx(SPAN + SLOT - 10)
    window.advance(SPAN + SLOT)
    assert window.total == 7
