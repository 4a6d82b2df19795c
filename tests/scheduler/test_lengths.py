"""What is remembered of prompt lengths."""

from itertools import pairwise
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.lengths import EDGES, Lengths


def remembered(*tokens: int, memory: float = 100.0) -> Lengths:
    lengths = Lengths(memory)
    for each in tokens:
        lengths.add(each, 0.0)
    return lengths


def test_edges_grow_by_a_tenth_and_hold_the_powers_of_two() -> None:
    assert {2**power for power in range(21)} <= set(EDGES)
    assert all(low < high <= low * 1.1 + 1 for low, high in pairwise(EDGES))


def test_shares_of_the_work_and_of_the_prompts() -> None:
    seen = remembered(*[128] * 6, *[1024] * 4).distribution()
    work = 6 * 128 / (6 * 128 + 4 * 1024)
    assert seen.work_up_to(512) == pytest.approx(work)
    assert seen.longer_than(512) == pytest.approx(0.4)
    assert seen.mean_longer_than(512) == pytest.approx(1024)
    assert seen.quantile(0.5) == 128
    assert seen.quantile(0.3) == 1024
    assert (seen.work_up_to(5_000_000), seen.mean_longer_than(1024)) == (1.0, 0.0)


def test_within_a_bucket_prompts_count_as_spread_evenly() -> None:
    seen = remembered(1000).distribution()
    low = EDGES[EDGES.index(1024) - 1]
    assert seen.longer_than(low) == 1.0
    assert seen.longer_than((low + 1024) / 2) == pytest.approx(0.5)
    assert remembered(1).distribution().longer_than(0.5) == pytest.approx(0.5)


def test_a_prompt_over_a_million_tokens_is_counted() -> None:
    seen = remembered(1, 9_000_000).distribution()
    assert seen.longer_than(500_000) == pytest.approx(0.5)


def test_what_came_long_ago_counts_less() -> None:
    lengths = remembered(*[64] * 100)
    assert lengths.seen(0.0) == pytest.approx(100)
    assert lengths.seen(100.0) == pytest.approx(100 * exp(-1))
    for _ in range(100):
        lengths.add(4096, 300.0)
    assert lengths.distribution().longer_than(1024) == pytest.approx(1 / (1 + exp(-3)))


@pytest.mark.parametrize("later", [3_000.0, 1e6])
def test_it_goes_on_for_ever(later: float) -> None:
    lengths = remembered(64, 64)
    lengths.add(4096, later)
    lengths.add(4096, later + 1.0)
    assert lengths.seen(later) == pytest.approx(1.0 + exp(0.01), rel=1e-3)
    assert lengths.distribution().longer_than(1024) == pytest.approx(1.0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=50), st.integers(1, 1_000_000))
def test_shares_are_shares(tokens: list[int], bound: int) -> None:
    seen = remembered(*tokens).distribution()
    assert 0.0 <= seen.work_up_to(bound) <= 1.0 + 1e-9
    assert seen.work_up_to(bound) <= seen.work_up_to(2 * bound) + 1e-9
    assert -1e-9 <= seen.longer_than(bound) <= 1.0
    assert seen.longer_than(seen.quantile(0.05)) <= 0.05 + 1e-6
