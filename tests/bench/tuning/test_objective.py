"""What is better, and what is ruled out."""

from dataclasses import replace

import pytest

from bench.tuning.compare import judge
from bench.tuning.objective import Aim, Objective, Window, figures, noise

GOOD = Window(
    requests=200, failed=0, ttfts=(0.1,) * 99 + (0.3,), good=90, seconds=20.0, kv_usage=0.5
)


def test_figures_are_of_all_windows_together() -> None:
    found = figures([GOOD, replace(GOOD, ttfts=(0.1,) * 100, seconds=30.0, kv_usage=0.7)])
    assert found.ttft_p99 == 0.1, "two windows of 100: one slow request is half a per cent"
    assert found.throughput == pytest.approx(8.0)
    assert found.goodput == pytest.approx(3.6)
    assert found.kv_usage == 0.7


def test_less_is_better_for_both_aims() -> None:
    slow = replace(GOOD, ttfts=(0.9,) * 100, good=0)
    for aim in Aim:
        assert Objective(aim).score([GOOD]) < Objective(aim).score([slow])
    assert Objective().score([slow]) == pytest.approx(900.0)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"kv_usage": 0.96}, "kv_usage"),
        ({"preemptions": 1}, "preemptions"),
        ({"failed": 20}, "throughput"),
        ({"failed": 1}, "failures"),
        ({"refused": "no memory"}, "start"),
    ],
)
def test_each_constraint_rules_out(change: dict[str, int | float | str], name: str) -> None:
    objective = Objective(floor=9.5)
    assert not objective.violations([GOOD])
    found = objective.violations([replace(GOOD, **change)])
    assert found[name] > 0


def test_an_engine_that_did_not_start_is_the_worst_of_all() -> None:
    refused = Window(0, 0, (), 0, 0.0, refused="no memory")
    for aim in Aim:
        assert Objective(aim).score([refused]) >= Objective(aim).score([GOOD])


def test_windows_that_disagree_are_noisy() -> None:
    assert noise([GOOD]) == 0.0
    assert noise([GOOD, GOOD]) == 0.0
    assert noise([GOOD, replace(GOOD, ttfts=(0.9,) * 10)]) > 0.3


def windows(*milliseconds: float) -> list[Window]:
    return [replace(GOOD, ttfts=(ms / 1e3,) * 10) for ms in milliseconds]


def test_a_gain_in_every_round_is_better() -> None:
    found = judge(Aim.TTFT, windows(100, 200, 150, 130), windows(50, 110, 70, 66))
    assert found.better
    assert found.ratio == pytest.approx(0.5, abs=0.03)


def test_a_gain_within_noise_is_none() -> None:
    found = judge(Aim.TTFT, windows(100, 200, 150, 130), windows(50, 250, 60, 160))
    assert found.ratio < 1.0 < found.high
    assert not found.better


def test_a_loss_is_no_gain() -> None:
    assert not judge(Aim.TTFT, windows(50, 51, 52), windows(100, 101, 102)).better


def test_one_round_decides_nothing() -> None:
    assert not judge(Aim.TTFT, windows(100), windows(10)).better


def test_more_goodput_is_better() -> None:
    more = [replace(GOOD, good=good) for good in (99, 98, 97)]
    less = [replace(GOOD, good=good) for good in (50, 49, 48)]
    assert judge(Aim.GOODPUT, less, more).better
    assert not judge(Aim.GOODPUT, more, less).better
