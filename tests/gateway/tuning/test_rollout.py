"""Trials of shares of GPU memory as dialogues, on engines whose TTFT depends on the share."""

from collections.abc import Callable, Sequence

import pytest

from gateway.tuning.config import UtilizationConfig
from gateway.tuning.memory import Advice, Heard, History, Marks, advise
from gateway.tuning.rollout import Command, End, Ended, Restart, Rollout

SPEC = UtilizationConfig(samples=60, watch=600, rest=3600)
MARKS = Marks(high=1.0, low=0.33)
TARGET = 0.6
Ttft = Callable[[float], float]


def cliff(share: float) -> float:
    """Too few KV blocks under 0.82: requests wait for each other. Slow anyhow."""
    return 0.7 if share >= 0.82 else 2.5


def relief(share: float) -> float:
    """Less memory helps: what the source's rule hopes for."""
    return 0.2 + share - 0.7


class Fleet:
    """Engines in virtual time: a request a second at each. Each stands where it was put last."""

    def __init__(self, ttft: Ttft, **shares: float) -> None:
        self.ttft = ttft
        self.shares = dict(shares)
        self.rollout = Rollout()
        self.history = History()
        self.now = 0.0
        self.story: list[Command] = []
        self.broken: set[float] = set()

    def advices(self) -> list[Advice]:
        return [
            advise(name, share, self.history.ratios(name), MARKS)
            for name, share in self.shares.items()
        ]

    def second(self) -> None:
        self.now += 1.0
        for name, share in self.shares.items():
            # Every tenth one takes half as long again: a spread that is no regression.
            ttft = self.ttft(share) * (1.5 if self.now % 10 == 0 else 1.0)
            heard = Heard(name, "short", ttft)
            self.history.add(heard, ttft / TARGET, SPEC.samples)
            self.rollout.heard(heard)

    def run(self, seconds: int, *, window: bool = True) -> Sequence[Command]:
        """Live, as `Carrying` does; returns what was decided in this time."""
        told = len(self.story)
        for _ in range(seconds):
            self.second()
            command = self.judge()
            if command is None and window:
                command = self.begin()
            while command is not None:
                self.story.append(command)
                command = self.obey(command)
        return self.story[told:]

    def judge(self) -> Command | None:
        trial = self.rollout.trial
        share = self.shares.get(trial.advice.backend) if trial else None
        return self.rollout.judge(share, SPEC, self.now)

    def begin(self) -> Command | None:
        advice = self.rollout.candidate(self.advices(), self.now)
        if advice is None:
            return None
        return self.rollout.begin(advice, self.history.group(advice.backend), SPEC, self.now)

    def obey(self, command: Command) -> Command | None:
        if not isinstance(command, Restart):
            return None
        self.history.forget(command.backend)
        self.now += 60.0
        if command.value in self.broken:
            return self.rollout.not_back(f"{command.backend} gives no token")
        self.shares[command.backend] = command.value
        return self.rollout.restarted(self.now)


def steps(commands: Sequence[Command]) -> list[tuple[str, float]]:
    return [
        ("restart" if isinstance(each, Restart) else each.how.value, each.value)
        for each in commands
    ]


def test_a_planned_regression_is_rolled_back() -> None:
    fleet = Fleet(cliff, a=0.85)
    told = fleet.run(400)
    assert steps(told) == [("restart", 0.80), ("restart", 0.85), ("rolled_back", 0.85)]
    assert told[1].why.startswith("TTFT of short: 30 of 30 at new above")
    assert fleet.shares == {"a": 0.85}


def test_what_was_worse_once_is_not_tried_again() -> None:
    fleet = Fleet(cliff, a=0.85)
    fleet.run(400)
    assert fleet.run(8000) == []


def test_what_helps_stays_and_goes_on_after_a_rest() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    assert steps(fleet.run(400)) == [("restart", 0.80), ("kept", 0.80)]
    assert fleet.run(3000) == []
    assert steps(fleet.run(9000)) == [
        *(("restart", 0.75), ("kept", 0.75), ("restart", 0.70), ("kept", 0.70)),
    ]
    assert fleet.run(8000) == []


def test_less_memory_that_helps_brings_ttft_between_the_marks() -> None:
    fleet = Fleet(lambda share: relief(share) + 0.35, a=0.90)
    fleet.run(20_000)
    assert fleet.shares == {"a": 0.70}
    assert all(step != "rolled_back" for step, _ in steps(fleet.story))


def test_one_engine_at_a_time() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85, b=0.85)
    told = fleet.run(400)
    assert [(each.backend, type(each)) for each in told] == [
        *(("a", Restart), ("a", Ended), ("b", Restart), ("b", Ended)),
    ]


def test_nothing_begins_outside_a_window_and_going_back_waits_for_none() -> None:
    fleet = Fleet(cliff, a=0.85)
    assert fleet.run(200, window=False) == []
    assert steps(fleet.run(1)) == [("restart", 0.80)]
    assert steps(fleet.run(100, window=False)) == [("restart", 0.85), ("rolled_back", 0.85)]


def test_an_engine_that_does_not_come_back_gets_its_old_share() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    fleet.broken = {0.80}
    told = fleet.run(400)
    assert steps(told) == [("restart", 0.80), ("restart", 0.85), ("rolled_back", 0.85)]
    assert told[-1].why == "a gives no token"


def test_one_that_does_not_come_back_at_all_is_told_of_and_left_alone() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    fleet.broken = {0.80, 0.85}
    told = fleet.run(400)
    assert steps(told)[-1] == ("rolled_back", 0.85)
    assert told[-1].why == "a gives no token; then a gives no token"
    assert fleet.rollout.trial is None


def test_errors_are_a_regression_too() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    assert steps(fleet.run(35)) == [("restart", 0.80)]
    for _ in range(30):
        fleet.rollout.heard(Heard("a", "short", None))
        fleet.rollout.heard(Heard("b", "short", None))
    told = fleet.run(1)
    assert steps(told) == [("restart", 0.85), ("rolled_back", 0.85)]
    assert told[0].why.startswith("errors: new 30 of")


def test_after_the_watch_a_few_ttfts_decide() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    fleet.run(65)
    command = fleet.rollout.judge(0.80, SPEC, fleet.now + SPEC.watch)
    assert isinstance(command, Ended)
    assert command.how is End.KEPT
    assert command.why == "35 TTFTs in 600 s are not worse"


def test_what_nobody_has_measured_does_not_stay_but_may_be_tried_again() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    fleet.run(35)
    command = fleet.rollout.judge(0.80, SPEC, fleet.now + SPEC.watch)
    assert isinstance(command, Restart)
    assert (command.value, command.why) == (0.85, "5 TTFTs in 600 s: too few to tell")
    assert fleet.obey(command) == Ended("a", 0.85, End.ROLLED_BACK, command.why)
    assert steps(fleet.run(4000))[0] == ("restart", 0.80)


@pytest.mark.parametrize(("share", "left"), [(0.75, 0.75), (None, 0.85)])
def test_a_trial_ends_when_somebody_else_restarts_the_engine(
    share: float | None, left: float
) -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    fleet.run(35)
    command = fleet.rollout.judge(share, SPEC, fleet.now)
    assert command == Ended("a", left, End.OVERTAKEN, "somebody else has restarted the engine")
    assert fleet.rollout.judge(share, SPEC, fleet.now) is None


def test_without_enough_to_compare_with_nothing_begins() -> None:
    fleet = Fleet(lambda share: 0.8, a=0.85)
    assert fleet.run(29) == []
    assert steps(fleet.run(1)) == [("restart", 0.80)]
