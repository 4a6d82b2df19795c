"""The coarse engine is the engine: the same first tokens and ends at the same times."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.coarse import CoarseEngine
from bench.engine import CannotServe, Engine, EngineSpec
from bench.presets import A100_80GB, LLAMA_8B, engine

specs = st.builds(
    EngineSpec,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 80),
    kv_tokens=st.sampled_from([64, 96, 200]),
    block_tokens=st.sampled_from([1, 8, 16]),
    step_base=st.sampled_from([0.001, 0.0007]),
    decode_per_seq=st.sampled_from([0.0, 0.002]),
)
arrivals = st.lists(
    st.tuples(st.floats(0, 0.05), st.integers(1, 40), st.integers(1, 20)), max_size=30
)
Told = list[tuple[str, int, bool]]


def _play(
    subject: Engine | CoarseEngine, jobs: list[tuple[float, int, int]]
) -> tuple[Told, list[float]]:
    """What it tells of first tokens and ends, and when."""
    told: Told = []
    times: list[float] = []

    def advance(until: float) -> None:
        while (at := subject.next_event()) is not None and at <= until:
            for one in subject.advance(at):
                if one.token_index == 0 or one.finished:
                    told.append((one.seq_id, one.token_index, one.finished))
                    times.append(one.at)

    now = 0.0
    for number, (gap, prompt, output) in enumerate(jobs):
        now += gap
        advance(now)
        subject.add(str(number), prompt, output, now)
    advance(1e9)
    return told, times


@given(specs, arrivals)
@settings(max_examples=150, deadline=None)
def test_it_tells_what_the_engine_tells(
    spec: EngineSpec, jobs: list[tuple[float, int, int]]
) -> None:
    exact, coarse = Engine(spec), CoarseEngine(spec)
    (told, times), (coarsely, its_times) = _play(exact, jobs), _play(coarse, jobs)
    assert coarsely == told
    assert its_times == pytest.approx(times)
    assert (coarse.steps, coarse.preemptions) == (exact.steps, exact.preemptions)
    assert (coarse.running, coarse.waiting, coarse.kv_usage) == (0, 0, 0.0)


def test_it_tells_the_same_of_an_a100_that_preempts() -> None:
    random, spec = Random(1), engine(A100_80GB, LLAMA_8B)
    jobs = [
        (random.expovariate(7), random.randint(1, 6000), random.randint(1, 700)) for _ in range(600)
    ]
    spec = replace(spec, kv_tokens=100_000)
    exact, coarse = Engine(spec), CoarseEngine(spec)
    told, times = _play(exact, jobs)
    assert exact.preemptions > 10
    assert _play(coarse, jobs) == (told, pytest.approx(times))


def test_steps_that_are_alike_are_one_event_until_a_sequence_comes() -> None:
    subject = CoarseEngine(EngineSpec(step_base=0.001, prefill_per_token=0.0))
    subject.add("a", 20, 101, 0.0)
    subject.advance(0.001)
    assert subject.next_event() == pytest.approx(0.101)
    subject.add("b", 20, 2, 0.0505)
    cut = subject.next_event()
    assert cut == pytest.approx(0.051)
    subject.advance(cut or 0.0)
    assert (subject.steps, subject.running, subject.waiting) == (51, 2, 0)


def test_it_refuses_what_it_cannot_tell() -> None:
    with pytest.raises(ValueError, match="plain"):
        CoarseEngine(EngineSpec(long_prefill_token_threshold=512))
    with pytest.raises(ValueError, match="prefix"):
        CoarseEngine(EngineSpec()).add("a", 20, 1, 0.0, prefix=(1,))
    with pytest.raises(CannotServe):
        CoarseEngine(EngineSpec(kv_tokens=64)).add("a", 64, 2, 0.0)
