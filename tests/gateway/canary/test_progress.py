"""The canary's state machine in virtual time, with requests drawn from known distributions."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.canary.config import CanaryConfig
from gateway.canary.progress import OVER, Phase, Progress, advance, waits_for
from gateway.canary.sketch import Group, merged
from gateway.canary.verdict import reference


def spec(**changes: Any) -> CanaryConfig:
    values = {"old": "a", "new": "b", "step_time": 60, "side_by_side": 200, "samples": 200}
    return CanaryConfig.model_validate(values | changes)


QUICK: dict[str, Any] = {"steps": "0.2,0.5,1", "step_time": 5, "side_by_side": 12}


@dataclass
class World:
    """Two groups whose TTFTs are lognormal; the new one's are `slowdown` times as long."""

    slowdown: float = 1.0
    failing: float = 0.0
    seed: int = 1
    rate: int = 20
    now: float = 1e9
    spec: CanaryConfig = field(default_factory=spec)
    progress: Progress | None = None
    before: Group = field(default_factory=Group)
    old: Group = field(default_factory=Group)
    new: Group = field(default_factory=Group)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.shares: list[float] = []

    def second(self) -> Progress:
        step = self.progress.step if self.progress else 0
        share = self.progress.share(self.spec) if self.progress else 0.0
        for _ in range(self.rate):
            self._request(share)
        self.now += 1.0
        groups = (reference(self.old, merged([self.before, self.old])), self.new)
        self.progress = advance(self.progress, self.spec, groups, self.now)
        if self.progress.step != step:
            self.before = merged([self.before, self.old])
            self.old, self.new = Group(), Group()
        if not self.shares or self.shares[-1] != self.progress.share(self.spec):
            self.shares.append(self.progress.share(self.spec))
        return self.progress

    def _request(self, share: float) -> None:
        ttft = self.draw.lognormvariate(-2.3, 0.6)
        if self.draw.random() >= share:
            self.old.answered("short", ttft)
        elif self.draw.random() < self.failing:
            self.new.failed()
        else:
            self.new.answered("short", ttft * self.slowdown)

    def until_over(self, within: int = 3_000) -> Progress:
        for _ in range(within):
            if self.second().phase in OVER:
                break
        assert self.progress is not None
        return self.progress


def test_an_equal_group_is_promoted_by_all_steps_and_not_too_early() -> None:
    world = World()
    began = world.now
    end = world.until_over()
    assert end.phase is Phase.PROMOTED
    assert world.shares == [0.01, 0.05, 0.25, 0.5, 1.0]
    assert world.now - began >= 200 + 60


def test_a_group_twice_as_slow_is_rolled_back_before_it_has_much_traffic() -> None:
    world = World(slowdown=2.0)
    end = world.until_over()
    assert end.phase is Phase.ROLLED_BACK
    assert end.share(world.spec) == 0.0
    assert max(world.shares) <= 0.25
    assert "TTFT of short" in end.reason


def test_a_group_that_fails_is_rolled_back() -> None:
    world = World(failing=0.1)
    end = world.until_over()
    assert end.phase is Phase.ROLLED_BACK
    assert end.reason.startswith("errors: ")
    assert max(world.shares) <= 0.05


def test_chance_alone_rolls_back_less_often_than_alpha_says() -> None:
    """Without any margin, so that nothing but the test itself stands against chance."""
    fast = spec(**QUICK, ttft_margin=0.0, error_margin=0.0, alpha=0.05)
    ends = [World(seed=n, spec=fast, rate=100).until_over().phase for n in range(40)]
    assert ends.count(Phase.ROLLED_BACK) <= 40 * 0.05 * 3
    assert ends.count(Phase.PROMOTED) + ends.count(Phase.ROLLED_BACK) == 40


def test_a_slow_group_is_found_whatever_the_draw() -> None:
    quick = spec(**QUICK)
    ends = [World(slowdown=2.0, seed=n, spec=quick, rate=50).until_over() for n in range(40)]
    assert [end.phase for end in ends] == [Phase.ROLLED_BACK] * 40


def test_a_group_within_the_margin_is_promoted() -> None:
    assert World(slowdown=1.1).until_over().phase is Phase.PROMOTED


def test_few_samples_prove_nothing_and_go_nowhere() -> None:
    world = World(slowdown=3.0, rate=1)
    for _ in range(300):
        world.second()
    assert world.progress is not None
    assert world.progress.phase is Phase.RUNNING
    assert world.progress.step == 0
    assert "more requests at the new group" in waits_for(
        world.progress, world.spec, (world.old, world.new), world.now
    )


def test_time_alone_does_not_take_a_step_nor_samples_alone() -> None:
    impatient = World(rate=50_000, spec=spec(samples=200))
    impatient.second()
    assert impatient.second().step == 0
    idle = World(rate=0)
    for _ in range(500):
        idle.second()
    assert idle.progress is not None
    assert idle.progress.step == 0


def test_orders_are_obeyed_at_once() -> None:
    world = World()
    world.second()
    world.spec = spec(order="pause")
    assert world.second().phase is Phase.PAUSED
    for _ in range(500):
        world.second()
    assert world.shares == [0.01]
    world.spec = spec(order="run")
    assert world.second().phase is Phase.RUNNING
    world.spec = spec(order="abort")
    assert world.second().share(world.spec) == 0.0
    world.spec = spec(order="promote")
    assert world.second().share(world.spec) == 1.0


def test_what_is_over_stays_over_until_it_is_begun_anew() -> None:
    world = World(slowdown=4.0)
    world.until_over()
    world.slowdown = 1.0
    for _ in range(100):
        assert world.second().phase is Phase.ROLLED_BACK
    world.spec = spec(run="again")
    world.old, world.new, world.before = Group(), Group(), Group()
    assert world.second().phase is Phase.RUNNING


@pytest.mark.parametrize("steps", ["0.9,1", "0.5,1", "0.1"])
def test_other_steps_lead_to_the_end_too(steps: str) -> None:
    world = World(spec=spec(steps=steps), rate=100)
    assert world.until_over().phase is Phase.PROMOTED
    assert world.shares[-1] == 1.0
