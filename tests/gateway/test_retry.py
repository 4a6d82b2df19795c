"""The retry budget: never more retries than its share of the traffic and what was saved up."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.retry import RetryBudget


@given(st.lists(st.booleans()), st.floats(0, 1), st.integers(1, 20))
def test_retries_stay_within_share_and_reserve(
    steps: list[bool], share: float, reserve: int
) -> None:
    budget = RetryBudget(share, float(reserve))
    requests = retries = 0
    for is_request in steps:
        if is_request:
            requests += 1
            budget.deposit()
        else:
            retries += budget.withdraw()
        assert retries <= reserve + requests * share + 1e-9


def test_a_share_of_nothing_allows_none() -> None:
    assert not RetryBudget(0.0).withdraw()


def test_a_new_budget_allows_its_reserve_then_what_traffic_deposits() -> None:
    budget = RetryBudget(0.5, 2.0)
    assert [budget.withdraw() for _ in range(3)] == [True, True, False]
    budget.deposit()
    assert not budget.withdraw()
    budget.deposit()
    assert budget.withdraw()
