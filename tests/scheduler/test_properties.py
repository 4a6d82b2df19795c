"""Properties that hold for every order of events, found by hypothesis or proved to be reached.

`World` (driver.py) holds each command against books of its own; here are only the ways to
choose what happens next.
"""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from scheduler.events import Abandoned, Failed, Finished, Reason
from scheduler.model import Backend, BackendState
from tests.scheduler.driver import CLASS_SETS, MODELS, NAMES, SETTINGS, World, walk

backends = st.builds(
    Backend,
    name=st.sampled_from(NAMES),
    state=st.sampled_from((*BackendState, BackendState.READY, BackendState.READY)),
    models=st.sampled_from([frozenset({"m"}), frozenset(MODELS), frozenset()]),
    classes=st.sampled_from(CLASS_SETS),
    limit=st.integers(1, 4),
    weight=st.sampled_from([0.0, 0.5, 1.0, 1.0]),
)
ends = st.sampled_from([Finished, Failed, Abandoned])


class AnyOrder(RuleBasedStateMachine):
    """Any events in any order: outcomes are unique, limits hold, deadlines hold, books agree."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(limit=st.integers(1, 3))
    def one_ready_backend(self, limit: int) -> None:
        ready = Backend("a", BackendState.READY, frozenset({"m"}), limit=limit)
        self.world.change_backend(ready)

    @rule(
        tokens=st.sampled_from([1, 40, 50, 100, 500, 501, 2049, 30_000]),
        tenant=st.sampled_from(["", "x", "y"]),
        priority=st.integers(-1, 1),
        model=st.sampled_from(["m", "m", "m", "n", "unknown"]),
        avoid=st.frozensets(st.sampled_from(NAMES), max_size=2),
        patience=st.one_of(st.none(), st.floats(0.0, 10.0)),
        prefix=st.sampled_from([(), (), (1, 2), (1, 2, 3), (4,)]),
    )
    def arrive(self, patience: float | None, **fields: object) -> None:
        deadline = None if patience is None else self.world.now + patience
        if deadline is not None and deadline <= self.world.now:
            deadline = self.world.now + 0.5
        self.world.arrive(deadline=deadline, **fields)  # type: ignore[arg-type]

    @rule(pick=st.integers(0, 10_000), how=ends)
    def end_any(self, pick: int, how: type[Finished | Failed | Abandoned]) -> None:
        names = (*self.world.tickets, "never")
        self.world.end(names[-1 - pick % len(names)], how)

    @rule(pick=st.integers(0, 10_000), how=ends)
    def end_a_stream(self, pick: int, how: type[Finished | Failed | Abandoned]) -> None:
        if names := tuple(self.world.flying):
            self.world.end(names[pick % len(names)], how)

    @rule(pick=st.integers(0, 10_000))
    def first_token(self, pick: int) -> None:
        names = (*self.world.tickets, "never")
        self.world.first_token(names[-1 - pick % len(names)])

    @rule(backend=backends)
    def change_backend(self, backend: Backend) -> None:
        self.world.change_backend(backend)

    @rule(name=st.sampled_from(NAMES), cancel=st.booleans())
    def remove_backend(self, name: str, cancel: bool) -> None:
        self.world.remove_backend(name, cancel)

    @rule(seconds=st.floats(0.0, 5.0))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(which=st.sampled_from(SETTINGS))
    def change_settings(self, which: object) -> None:
        self.world.change_settings(which)  # type: ignore[arg-type]

    def teardown(self) -> None:
        self.world.finish_everything()
        self.world.replay()


AnyOrder.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("seed", range(4))
def test_the_actions_reach_every_outcome(seed: int) -> None:
    seen = walk(seed, 1500).seen
    expected = {reason.value for reason in Reason} | {"Dispatch", "Decided", "Cancel", "WakeAt"}
    assert expected - seen.keys() == set()
    assert seen["Dispatch"] > 150


def test_a_walk_replayed_gives_the_same_commands() -> None:
    walk(9, 1000).replay()
