"""The arithmetic of verdicts, against sums done by hand and against chance itself."""

import random
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.canary.binomial import rank_above, tail, upper
from gateway.canary.sketch import Group, above, bucket, edge, group_of, merged, ranked


@given(st.integers(1, 60), st.floats(0.001, 0.999), st.integers(0, 61))
def test_the_tail_is_the_sum_of_its_terms(n: int, p: float, k: int) -> None:
    exact = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert tail(n, p, k) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("n", "p", "k"), [(10**6, 0.01, 10_300), (10**6, 0.5, 499_000)])
def test_the_tail_of_many_is_found_in_time(n: int, p: float, k: int) -> None:
    assert 0.0 < tail(n, p, k) < 1.0


def test_the_upper_bound_of_nothing_in_a_hundred() -> None:
    assert upper(100, 0, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-9)
    assert upper(0, 0, 0.05) == 1.0
    assert upper(100, 100, 0.05) == 1.0


@pytest.mark.parametrize(("n", "possible"), [(298, False), (299, True), (5000, True)])
def test_a_p99_needs_299_samples_for_any_bound(n: int, possible: bool) -> None:
    rank = rank_above(n, 0.99, 0.05)
    assert (rank is not None) is possible
    if rank is not None:
        assert rank > 0.99 * n


def test_the_bound_covers_the_true_quantile_as_often_as_it_says() -> None:
    draw = random.Random(3)
    rank = rank_above(600, 0.99, 0.1)
    assert rank is not None
    covered = sum(sorted(draw.random() for _ in range(600))[rank - 1] >= 0.99 for _ in range(400))
    assert covered >= 400 * 0.87


@given(st.floats(2e-4, 1000))
def test_a_time_lies_in_its_bucket(seconds: float) -> None:
    index = bucket(seconds)
    assert edge(index) * 0.999999 <= seconds <= edge(index + 1) * 1.000001


def test_a_group_survives_the_way_through_redis() -> None:
    group = Group()
    for ttft in (0.1, 0.1, 2.0):
        group.answered("short", ttft)
    group.answered("long", None)
    group.failed()
    fields = {name: str(count) for name, count in group.fields("new").items()}
    back = group_of("new", fields | {"old|answers": "7", "new|junk": "x", "noise": "1"})
    assert (back.answers, back.errors, back.ttft) == (4, 1, group.ttft)
    assert merged([back, back]).answers == 8


def test_ranks_and_excesses_are_of_whole_buckets() -> None:
    group = Group()
    for milliseconds in range(1, 101):
        group.answered("c", milliseconds / 1000)
    counts = group.ttft["c"]
    assert 0.050 <= ranked(counts, 50) <= 0.0525
    assert 45 <= above(counts, 0.050) <= 51
    with pytest.raises(ValueError, match="only 100"):
        ranked(counts, 101)
