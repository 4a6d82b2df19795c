"""Playbooks of the engine model: each is one thing that vLLM does and users notice."""

from itertools import pairwise

import pytest

from bench.engine import CannotServe, Emitted, Engine, EngineSpec

MS = 1e-3


def drain(engine: Engine) -> list[Emitted]:
    emitted: list[Emitted] = []
    while (at := engine.next_event()) is not None:
        emitted += engine.advance(at)
    return emitted


def first_tokens(emitted: list[Emitted]) -> dict[str, float]:
    return {e.seq_id: round(e.at / MS, 6) for e in emitted if e.token_index == 0}


def test_one_prompt_costs_its_tokens_and_each_further_token_one_step():
    engine = Engine(EngineSpec(step_base=2 * MS, prefill_per_token=0.1 * MS, decode_per_seq=1 * MS))
    engine.add("a", 100, 3, now=5.0)
    times = [(e.token_index, round((e.at - 5.0) / MS, 6), e.finished) for e in drain(engine)]
    assert times == [(0, 12.0, False), (1, 15.0, False), (2, 18.0, True)]
    assert (engine.prompt_tokens, engine.generated_tokens, engine.steps) == (100, 3, 3)


def test_a_long_prompt_blocks_the_short_one_behind_it_until_its_last_chunk():
    engine = Engine(EngineSpec(max_num_batched_tokens=2048))
    engine.add("long", 8000, 1, now=0.0)
    engine.add("short", 100, 1, now=0.001)
    # Three full steps, then the last 1,856 tokens share their step with the short prompt.
    assert first_tokens(drain(engine)) == {"long": 810.0, "short": 810.0}


def test_the_threshold_lets_the_short_one_pass():
    engine = Engine(EngineSpec(max_num_batched_tokens=2048, long_prefill_token_threshold=512))
    engine.add("long", 8000, 1, now=0.0)
    engine.add("short", 100, 1, now=0.001)
    assert first_tokens(drain(engine)) == {"short": 112.4, "long": 810.0}


def test_decoding_sequences_keep_their_turn_beside_a_long_prefill():
    engine = Engine(EngineSpec(max_num_batched_tokens=100))
    engine.add("decoding", 10, 5, now=0.0)
    engine.add("long", 500, 1, now=0.0)
    order = [e.seq_id for e in drain(engine)]
    assert order == ["decoding"] * 5 + ["long"]


def test_attention_makes_a_prompt_twice_as_long_cost_more_than_twice():
    spec = EngineSpec(max_num_batched_tokens=1000, prefill_per_token=0.0, attention=1e-6)
    times = {}
    for tokens in (1000, 2000):
        engine = Engine(spec)
        engine.add("a", tokens, 1, now=0.0)
        times[tokens] = drain(engine)[-1].at
    assert times[1000] == pytest.approx(1e-6 * 1000**2 / 2)
    assert times[2000] == pytest.approx(4 * times[1000])


def test_max_num_seqs_makes_the_rest_wait():
    engine = Engine(EngineSpec(max_num_seqs=2, decode_per_seq=1 * MS))
    for name in "abc":
        engine.add(name, 10, 5, now=0.0)
    engine.advance(engine.next_event() or 0.0)
    assert (engine.running, engine.waiting) == (2, 1)
    assert [e.seq_id for e in drain(engine) if e.finished] == ["a", "b", "c"]


def test_a_prompt_that_does_not_fit_the_free_kv_waits_without_being_preempted():
    engine = Engine(EngineSpec(kv_tokens=160, decode_per_seq=1 * MS))
    engine.add("a", 100, 20, now=0.0)
    engine.add("b", 100, 1, now=0.0)
    engine.advance(0.010)
    assert (engine.running, engine.waiting) == (1, 1)
    assert [e.seq_id for e in drain(engine) if e.finished] == ["a", "b"]
    assert engine.preemptions == 0


def test_the_youngest_is_preempted_and_its_tokens_are_computed_again():
    engine = Engine(EngineSpec(max_num_seqs=2, kv_tokens=64, decode_per_seq=1 * MS))
    engine.add("old", 16, 40, now=0.0)
    engine.add("young", 16, 40, now=0.0)
    engine.add("late", 16, 1, now=0.0)
    emitted = drain(engine)
    assert engine.preemptions == 1
    assert [e.seq_id for e in emitted if e.finished] == ["old", "late", "young"]
    young = [e for e in emitted if e.seq_id == "young"]
    assert [e.token_index for e in young] == list(range(40))
    gaps = [b.at - a.at for a, b in pairwise(young)]
    assert max(gaps) > 10 * MS


def test_a_cached_prefix_is_not_computed_again():
    engine = Engine(EngineSpec())
    engine.add("first", 1600, 1, now=0.0, prefix=range(100))
    drain(engine)
    engine.add("again", 1600, 1, now=1.0, prefix=range(100))
    assert engine.cached_tokens == 1584  # all but the block that holds the last token
    assert drain(engine)[0].at == pytest.approx(1.0 + 16 * 0.1 * MS)
    engine.add("half", 1600, 1, now=2.0, prefix=[*range(50), *range(1000, 1050)])
    assert drain(engine)[0].at == pytest.approx(2.0 + 800 * 0.1 * MS)


def test_the_end_of_an_idle_prefix_is_evicted_first():
    engine = Engine(EngineSpec(kv_tokens=160, block_tokens=16))
    engine.add("cached", 160, 1, now=0.0, prefix=range(10))
    drain(engine)
    engine.add("other", 80, 1, now=1.0)
    drain(engine)
    engine.add("again", 160, 1, now=2.0, prefix=range(10))
    assert engine.cached_tokens == 80


def test_two_sequences_share_the_blocks_of_a_common_prefix():
    engine = Engine(EngineSpec(kv_tokens=320, block_tokens=16, decode_per_seq=1 * MS))
    engine.add("a", 160, 9, now=0.0, prefix=range(10))
    engine.add("b", 160, 9, now=0.010, prefix=range(10))
    for _ in range(2):
        engine.advance(engine.next_event() or 0.0)
    assert engine.running == 2
    assert engine.kv_usage == pytest.approx((9 + 2 * 2) / 20)


def test_an_aborted_sequence_says_nothing_more_and_gives_its_blocks_back():
    engine = Engine(EngineSpec(decode_per_seq=1 * MS))
    engine.add("a", 1000, 5, now=0.0)
    assert engine.abort("a")
    assert not engine.abort("a")
    assert (engine.running, engine.kv_usage) == (0, 0.0)
    engine.add("b", 10, 1, now=0.001)
    # The step that was under way still takes its 100 ms.
    assert first_tokens(drain(engine)) == {"b": 101.0}


def test_an_id_may_come_back_within_the_step_that_its_abort_left_behind():
    engine = Engine(EngineSpec())
    engine.add("a", 1000, 1, now=0.0)
    engine.abort("a")
    engine.add("a", 10, 1, now=0.001)
    assert first_tokens(drain(engine)) == {"a": 101.0}


def test_what_arrives_as_a_step_begins_is_too_late_for_it():
    engine = Engine(EngineSpec(step_base=10 * MS, prefill_per_token=0.0))
    engine.add("a", 10, 1, now=0.0)
    engine.add("b", 10, 1, now=0.0)
    engine.add("c", 10, 1, now=0.010)
    assert first_tokens(drain(engine)) == {"a": 10.0, "b": 20.0, "c": 30.0}


def test_the_first_step_and_one_after_a_long_idle_time_are_cold():
    engine = Engine(EngineSpec(cold_step=1.0, cold_after=60.0))
    waits = []
    for now in (0.0, 30.0, 95.0):
        engine.add("a", 100, 1, now=now)
        waits.append(round(drain(engine)[0].at - now, 6))
    assert waits == [1.01, 0.01, 1.01]


def test_a_stalled_step_takes_longer_once():
    engine = Engine(EngineSpec())
    engine.stall(2.0)
    engine.add("a", 100, 1, now=0.0)
    engine.add("b", 100, 1, now=0.0)
    assert first_tokens(drain(engine)) == {"a": 2010.0, "b": 2020.0}


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (100, 70)])
def test_what_can_never_run_is_refused_at_once(prompt: int, output: int):
    engine = Engine(EngineSpec(kv_tokens=160))
    with pytest.raises(CannotServe):
        engine.add("a", prompt, output, now=0.0)
    assert engine.next_event() is None


def test_an_id_in_use_is_refused():
    engine = Engine()
    engine.add("a", 10, 1, now=0.0)
    with pytest.raises(KeyError):
        engine.add("a", 10, 1, now=0.0)


@pytest.mark.parametrize("spec", [{"max_num_seqs": 0}, {"kv_tokens": 15}])
def test_impossible_engines_are_refused(spec: dict[str, int]):
    with pytest.raises(ValueError, match=r"at least one block|start at 1"):
        EngineSpec(**spec)


def test_its_repr_tells_the_counts():
    engine = Engine(EngineSpec(max_num_seqs=1, kv_tokens=160))
    engine.add("a", 16, 1, now=0.0)
    engine.add("b", 16, 1, now=0.0)
    assert repr(engine) == "<Engine running=1 waiting=1 kv=0.100 step_ends=0.0016>"
