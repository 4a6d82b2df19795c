"""The space: what is in it, what excludes what, and where its middle is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.plans.model import Flag
from backends.plans.rules import Demand, Hardware, flags_for
from backends.plans.shapes import Shape
from bench.tuning.space import Flags, Space, around

SMALL = Space(
    {
        "max_num_seqs": (8, 16, 1024),
        "max_num_batched_tokens": (512, 2048),
        "long_prefill_token_threshold": (0, 512),
        "gpu_memory_utilization": (0.8, 0.9),
    },
    Flags(16, 2048, 0, 0.9),
)
PLACES = st.fixed_dictionaries(
    {axis: st.integers(0, len(values) - 1) for axis, values in SMALL.axes.items()}
)


def test_it_lies_around_the_plan_s_rules() -> None:
    demand = Demand("short", Shape(100, 500, 1024), 0.6)
    space = around(flags_for(Hardware(8, 80), demand))
    assert space.start == Flags(48, 12_288, 0, 0.9)
    assert space.start in space.candidates
    assert min(space.axes["max_num_seqs"]) == 12
    assert max(space.axes["max_num_seqs"]) == 192


def test_what_the_rules_do_not_say_is_as_vllm_has_it() -> None:
    space = around([Flag("max-num-seqs", 32, "")])
    assert space.start == Flags(32, 2048, 0, None)
    assert {flags.gpu_memory_utilization for flags in space.candidates} == {None}
    assert "gpu-memory-utilization" not in space.start.values()


def test_no_threshold_is_over_the_context() -> None:
    assert max(around([], longest=600).axes["long_prefill_token_threshold"]) == 512


def test_a_step_has_a_token_for_each_sequence() -> None:
    assert SMALL.at(dict.fromkeys(SMALL.axes, 0) | {"max_num_seqs": 2}) is None
    assert all(f.max_num_batched_tokens >= f.max_num_seqs for f in SMALL.candidates)
    rungs = SMALL.rungs(Flags(16, 512, 0, 0.9), "max_num_seqs")
    assert [flags.max_num_seqs for flags in rungs] == [8, 16], "512 tokens are none for 1,024"


def test_of_some_flags_alone_the_others_stay_as_they_are() -> None:
    space = SMALL.only(["long-prefill-token-threshold", "max-num-seqs"])
    assert list(space.axes)[:2] == ["long_prefill_token_threshold", "max_num_seqs"]
    assert {flags.gpu_memory_utilization for flags in space.candidates} == {0.9}
    assert space.start in space.candidates
    with pytest.raises(ValueError, match="no such flag: swap-space"):
        SMALL.only(["swap-space"])


def test_a_threshold_that_no_chunk_exceeds_is_none() -> None:
    place = dict.fromkeys(SMALL.axes, 0) | {"long_prefill_token_threshold": 1}
    assert SMALL.at(place) == Flags(8, 512, 0, 0.8)
    # 3 x 2 x 2 x 2, less two excluded pairs, less what is alike.
    assert len(SMALL.candidates) == 24 - 4 - 4


@given(PLACES, st.sets(st.sampled_from(SMALL.candidates)))
def test_the_nearest_is_a_candidate_and_none_is_nearer(
    place: dict[str, int], known: set[Flags]
) -> None:
    found = SMALL.nearest(place, known)
    left = set(SMALL.candidates) - known
    if found is None:
        assert not left
    else:
        assert found in left
        assert all(SMALL.distance(found, place) <= SMALL.distance(o, place) for o in left)
