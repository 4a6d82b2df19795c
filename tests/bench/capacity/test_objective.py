"""What an objective says of requests, whole or while they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity.objective import Account, Limit, parse
from bench.figures import percentile
from bench.simulation import Outcome
from bench.workload import Job


def outcomes(*ttfts: float | None, prompt: int = 100) -> list[Outcome]:
    return [Outcome(Job(0.0, prompt), first_token=ttft) for ttft in ttfts]


def test_limits_are_written_in_milliseconds_and_may_be_of_one_class() -> None:
    objective = parse("mean=200, short.p99=600", 1024)
    assert objective.limits == (Limit("", "mean", 0.2), Limit("short", "p99", 0.6))
    assert str(objective) == "mean=200,short.p99=600"


@pytest.mark.parametrize("text", ["", "p99", "p99=0", "p99=x", "p99=inf", "p42=1", "big.p99=1"])
def test_what_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as mean=200,short\.p99=600"):
        parse(text, 1024)


times = st.lists(st.floats(0.0, 2.0), min_size=1, max_size=300)


@given(times, st.sampled_from(["p50", "p90", "p95", "p99"]), st.floats(0.01, 2.0))
def test_a_percentile_holds_exactly_when_its_value_does(
    ttfts: list[float], statistic: str, bound: float
) -> None:
    account = Account(Limit("", statistic, bound), len(ttfts))
    for ttft in ttfts:
        account.add(ttft)
    assert account.lost == (percentile(ttfts, int(statistic[1:]) / 100) > bound)


@given(times.filter(lambda ttfts: abs(sum(ttfts) - 0.5 * len(ttfts)) > 1e-6))
def test_what_is_lost_stays_lost_and_a_mean_is_lost_by_its_sum(ttfts: list[float]) -> None:
    account, lost = Account(Limit("", "mean", 0.5), len(ttfts)), []
    for ttft in ttfts:
        account.add(ttft)
        lost.append(account.lost)
    assert lost == sorted(lost)
    assert account.lost == (sum(ttfts) > 0.5 * len(ttfts))


def test_a_class_is_judged_by_its_own_requests() -> None:
    objective = parse("short.p99=600,long.p99=2000", 1024)
    slow_long = [*outcomes(0.5, 0.6), *outcomes(1.9, prompt=5000)]
    assert objective.missed(slow_long) == []
    slow_short = [*outcomes(0.5, 0.7), *outcomes(1.9, prompt=5000)]
    assert [str(limit) for limit in objective.missed(slow_short)] == ["short.p99=600"]
    assert [objective.target(job) for job in (Job(0, 10), Job(0, 2000))] == [0.6, 2.0]


@pytest.mark.parametrize("limit", ["mean=200", "p99=600"])
def test_a_request_without_a_first_token_holds_nothing(limit: str) -> None:
    assert parse(limit, 1024).missed(outcomes(0.1, None)) != []
