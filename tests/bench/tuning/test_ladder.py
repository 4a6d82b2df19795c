"""The ladder: which rung comes next, as a dialogue."""

from collections.abc import Callable

from bench.tuning.ladder import Rung, following, upcoming
from bench.tuning.space import Flags, Space

RUNGS = [Flags(seqs, 8192) for seqs in (4, 8, 16, 32, 64, 128)]
START = RUNGS[2]


def climb(score: Callable[[int], float], most: int = 1_000) -> list[int]:
    """The rungs in the order of their measurement; those over `most` are ruled out."""
    told: dict[Flags, Rung] = {}
    while (flags := following(RUNGS, START, told)) is not None:
        assert flags not in told
        seqs = flags.max_num_seqs
        told[flags] = Rung(score(seqs), seqs <= most)
    return [flags.max_num_seqs for flags in told]


def test_it_climbs_while_that_helps_then_looks_down() -> None:
    assert climb(lambda seqs: abs(seqs - 64)) == [16, 32, 64, 128, 8, 4]


def test_two_steps_in_vain_end_a_direction() -> None:
    assert climb(lambda seqs: seqs) == [16, 32, 64, 8, 4]
    assert climb(lambda seqs: 100.0) == [16, 32, 64, 8, 4]


def test_one_step_in_vain_does_not() -> None:
    scores = {16: 100.0, 32: 101.0, 64: 80.0, 128: 90.0, 8: 120.0, 4: 130.0}
    assert climb(scores.__getitem__) == [16, 32, 64, 128, 8, 4]


def test_less_than_a_hundredth_is_no_gain() -> None:
    scores = {16: 100.0, 32: 99.5, 64: 99.2, 128: 50.0, 8: 99.9, 4: 99.9}
    assert 128 not in climb(scores.__getitem__)


def test_what_a_constraint_rules_out_ends_the_way_up() -> None:
    assert climb(lambda seqs: -seqs, most=32) == [16, 32, 64, 8, 4]


def test_from_a_start_that_is_ruled_out_the_way_leads_down() -> None:
    assert climb(lambda seqs: -seqs, most=8) == [16, 32, 8, 4]


def test_a_ladder_of_one_rung_is_done_after_it() -> None:
    assert following([START], START, {START: Rung(1.0, True)}) is None


SPACE = Space(
    {"max_num_seqs": (8, 16, 32), "max_num_batched_tokens": (1024, 2048, 4096, 8192)},
    Flags(16, 2048),
)


def climb_all(told: dict[Flags, Rung], score: Callable[[Flags], float]) -> list[tuple[int, int]]:
    """What is measured beside what is told already, in order."""
    order = []
    while (flags := upcoming(SPACE, told)) is not None:
        told[flags] = Rung(score(flags), True)
        order.append((flags.max_num_seqs, flags.max_num_batched_tokens))
    return order


def test_each_ladder_begins_at_the_best_of_the_one_before() -> None:
    order = climb_all({}, lambda f: -f.max_num_seqs - f.max_num_batched_tokens)
    assert order[:3] == [(16, 2048), (32, 2048), (8, 2048)]
    assert order[3:] == [(32, 4096), (32, 8192), (32, 1024), (16, 8192)], "and beside the best"


def test_from_what_the_optimiser_has_found_it_climbs_again() -> None:
    told: dict[Flags, Rung] = {}
    assert climb_all(told, lambda _: 50.0) == [
        (16, 2048), (32, 2048), (8, 2048), (16, 4096), (16, 8192), (16, 1024),
    ]  # fmt: skip
    told[Flags(32, 8192)] = Rung(10.0, True)
    assert climb_all(told, lambda _: 50.0) == [(32, 4096)]


def test_a_hopeless_rung_is_in_vain_but_ends_nothing() -> None:
    told = {START: Rung(100.0, True), RUNGS[3]: Rung(float("inf"), True)}
    assert following(RUNGS, START, told) == RUNGS[4]
