"""A changed bound is judged by prompts of the same size, before and after."""

from dataclasses import replace
from random import Random

import pytest

from gateway.recalibration.proposal import Change
from gateway.recalibration.trial import ENOUGH, Trial
from gateway.report.lines import Line

CHANGE = Change("class:short", "max_prompt_tokens", 1024, 2048, "")


def lines(count: int, *, slower: float = 1.0, size: int = 500, seed: int = 1) -> list[Line]:
    random = Random(seed)
    return [
        Line(0.0, "short", "b", "completed", size, random.lognormvariate(-2, 0.5) * slower, 1.0)
        for _ in range(count)
    ]


def trial(before: list[Line], after: list[Line]) -> Trial:
    made = Trial(CHANGE)
    made.saw_before(before)
    made.saw_after(after)
    return made


def test_the_same_traffic_is_not_worse() -> None:
    same = trial(lines(600), lines(600, seed=2))
    assert (same.verdict(), same.verdict(last=True)) == (None, None)
    assert (same.nothing_before(), same.nothing_after()) == (None, None)


@pytest.mark.parametrize(
    ("size", "name"),
    [(900, "prompts up to 1024"), (1500, "prompts of 1025 to 2048"), (9000, "prompts over 2048")],
)
def test_one_size_that_is_slower_is_enough(size: int, name: str) -> None:
    before = [one for each in (900, 1500, 9000) for one in lines(300, size=each)]
    others = [one for one in before if one.prompt_tokens != size]
    why = trial(before, [*others, *lines(300, size=size, slower=2.0, seed=2)]).verdict()
    assert why is not None
    assert name in why


def test_the_class_that_a_request_was_in_does_not_matter() -> None:
    """All that changes is what they are called."""
    renamed = [replace(one, service_class="long") for one in lines(600, size=1500)]
    assert trial(lines(600, size=1500), renamed).verdict(last=True) is None


def test_failures_are_worse_too() -> None:
    failing = [replace(one, outcome="expired", ttft=None) for one in lines(100)]
    why = trial(lines(600), [*lines(500), *failing]).verdict()
    assert why is not None
    assert "errors" in why


def test_too_few_requests_show_nothing() -> None:
    one_less = trial(lines(ENOUGH), lines(ENOUGH - 1))
    assert one_less.nothing_before() is None
    assert one_less.nothing_after() == "only 199 requests after the change, 200 are needed"


def test_looks_are_taken_only_when_more_has_come() -> None:
    made = trial(lines(600), lines(100))
    assert made.verdict() is None
    made.saw_after(lines(5, slower=100))
    assert made.verdict() is None, "a fifth more is not enough for another look"
    made.saw_after(lines(300, slower=100))
    assert made.verdict() is not None
