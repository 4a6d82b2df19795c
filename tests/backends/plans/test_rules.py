"""The source's tables, in the words of today's vLLM."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.plans.model import Flag, Value
from backends.plans.rules import Demand, Hardware, environment_for, flags_for
from backends.plans.shapes import Shape, assumed

SHORT = Shape(mean=100, p95=500, longest=1000, requests=9)
MIDDLE = Shape(mean=600, p95=1900, longest=4000, requests=9)
LONG = Shape(mean=3000, p95=9000, longest=30_000, requests=9)


def demand(shape: Shape, target: float = 0.6, **more: bool) -> Demand:
    return Demand("c", shape, target, **more)


def values(hardware: Hardware, wanted: Demand) -> dict[str, Value]:
    return {flag.name: flag.value for flag in flags_for(hardware, wanted)}


@pytest.mark.parametrize(
    ("size", "memory", "shape", "seqs", "batch", "utilization"),
    [
        (7, 80, SHORT, 48, 256 * 48, 0.90),  # min(64, 160), at most 48
        (7, 20, SHORT, 40, 256 * 40, 0.90),  # min(64, 40)
        (7, 80, MIDDLE, 32, 512 * 32, 0.90),  # min(32, 120)
        (7, 20, MIDDLE, 30, 512 * 30, 0.90),  # min(32, 30)
        (7, 80, LONG, 24, 512 * 24, 0.85),  # a quarter fewer
        (13, 80, SHORT, 32, 256 * 32, 0.85),
        (13, 80, LONG, 24, 512 * 24, 0.80),
        (13, 40, MIDDLE, 32, 512 * 32, 0.85),
    ],
)
def test_the_tuning_and_model_tables(
    size: float, memory: float, shape: Shape, seqs: int, batch: int, utilization: float
) -> None:
    found = values(Hardware(size, memory), demand(shape))
    assert found["max-num-seqs"] == seqs
    assert found["max-num-batched-tokens"] == batch
    assert found["gpu-memory-utilization"] == utilization


def test_a_large_model_is_spread_over_its_gpus() -> None:
    found = values(Hardware(70, 80, gpus=4), demand(SHORT))
    assert (found["max-num-seqs"], found["gpu-memory-utilization"]) == (16, 0.80)
    assert found["tensor-parallel-size"] == 4
    assert "tensor-parallel-size" not in values(Hardware(13, 80), demand(SHORT))


def test_peak_hours_keep_a_tenth_and_lower_the_memory() -> None:
    calm, peak = (values(Hardware(13, 80), demand(LONG, peak=p)) for p in (False, True))
    assert (calm["max-num-seqs"], peak["max-num-seqs"]) == (24, 21)
    assert (calm["gpu-memory-utilization"], peak["gpu-memory-utilization"]) == (0.80, 0.77)


def test_what_cannot_be_prefilled_in_time_is_not_queued() -> None:
    measured = Hardware(13, 80, prefill_rate=5000)
    assert values(measured, demand(SHORT, 0.5))["max-num-queued-tokens"] == 2500
    (flag,) = [
        f for f in flags_for(Hardware(13, 80), demand(SHORT)) if f.name == "max-num-queued-tokens"
    ]
    assert flag.value == int(0.6 * 140e12 / 26e9)
    assert "measure it" in flag.reason


def test_only_long_text_gets_what_is_for_long_text() -> None:
    only = {"long-prefill-token-threshold", "kv-offloading-size", "renderer-num-workers"}
    assert not only & values(Hardware(13, 80), demand(MIDDLE)).keys()
    found = values(Hardware(13, 80), demand(LONG))
    assert found["long-prefill-token-threshold"] == 512 * 24 // 4
    assert found["kv-offloading-size"] == 8.0
    assert found["renderer-num-workers"] == 2


def test_the_fast_tokenizer_is_used_only_where_it_was_proved() -> None:
    for proved, expected in [(True, ["VLLM_USE_FASTOKENS"]), (False, []), (None, [])]:
        wanted = Demand("c", LONG, 0.6, fastokens=proved)
        assert [variable.name for variable in environment_for(wanted)] == expected
        assert ("renderer-num-workers" in values(Hardware(13, 80), wanted)) is not bool(proved)


def test_a_model_that_cannot_fit_is_refused_with_what_would_do() -> None:
    with pytest.raises(ValueError, match="use at least 4 GPUs"):
        flags_for(Hardware(70, 80), demand(SHORT))
    assert flags_for(Hardware(70, 80, gpus=4), demand(SHORT))


@pytest.mark.parametrize(("gpus", "instead"), [(3, "2 or 4"), (6, "4 or 8"), (7, "4 or 8")])
def test_gpus_that_vllm_would_refuse_are_refused(gpus: int, instead: str) -> None:
    with pytest.raises(ValueError, match=f"{gpus} GPUs do not divide .*: use {instead}$"):
        flags_for(Hardware(70, 80, gpus=gpus), demand(SHORT))
    assert all(flags_for(Hardware(7, 80, gpus=good), demand(SHORT)) for good in (1, 2, 4, 8))


def test_a_flag_as_arguments() -> None:
    assert Flag("max-num-seqs", 3, "").arguments() == ("--max-num-seqs", "3")
    assert Flag("enforce-eager", True, "").arguments() == ("--enforce-eager",)
    assert Flag("enable-prefix-caching", False, "").arguments() == ("--no-enable-prefix-caching",)


@given(
    size=st.floats(0.1, 40),
    memory=st.floats(1, 300),
    mean=st.floats(1, 100_000),
    spread=st.floats(1, 5),
    peak=st.booleans(),
)
def test_every_plan_is_within_the_source_s_bounds(
    size: float, memory: float, mean: float, spread: float, peak: bool
) -> None:
    shape = Shape(mean, mean * spread, int(mean * spread * 2), 5)
    try:
        found = values(Hardware(size, memory), demand(shape, peak=peak))
    except ValueError:
        assert 2 * size >= 0.80 * memory
        return
    seqs, batch = int(found["max-num-seqs"]), int(found["max-num-batched-tokens"])
    assert 1 <= seqs <= (64 if mean < 128 else 32)
    assert seqs <= batch <= 512 * seqs
    assert 0.70 <= float(found["gpu-memory-utilization"]) <= 0.90
    assert all(flag.reason for flag in flags_for(Hardware(size, memory), demand(shape)))


def test_the_default_classes_meet_both_rows_of_the_table() -> None:
    assert demand(assumed(1024)).short
    assert not demand(assumed(None)).short
    assert demand(assumed(None)).long_text
