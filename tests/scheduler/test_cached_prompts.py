"""What prompts cost an engine that are in its cache: how that is learned, and what follows."""

from dataclasses import replace

import pytest

from scheduler.estimate import PrefillCost
from scheduler.events import Dispatch, Finished, FirstToken, Progress
from scheduler.model import AffinitySpec, BurstSpec
from tests.scheduler.playbook import TWO_CLASSES, Playbook, backend

_BLOCKS = tuple(range(26))
_PROMPT = 26_010
_SETTINGS = replace(
    TWO_CLASSES, affinity=AffinitySpec(block_tokens=1000), burst=BurstSpec(in_flight=None)
)


def _cached(play: Playbook, now: float, name: str) -> str | None:
    return play.arrive(now, name, _PROMPT, prefix=_BLOCKS)


def _taught(each: float) -> Playbook:
    """An engine that computed the prompt in 2.6 s and has it since, as a few waves have shown.

    A wave of n takes 10 ms and n times `each`, and all first tokens come at its end.
    """
    play = Playbook(_SETTINGS, backend())
    assert _cached(play, 0.0, "computed") == "b"
    play(2.6, FirstToken("computed"))
    play(2.7, Finished("computed"))
    for wave, count in enumerate((1, 3, 1, 3, 1, 3)):
        begins = 10.0 + wave
        names = [f"taught{wave}-{number}" for number in range(count)]
        for name in names:
            assert _cached(play, begins, name) == "b"
        for name in names:
            play(begins + 0.01 + count * each, FirstToken(name))
            play(begins + 0.9, Finished(name))
    return play


def test_the_price_of_a_cached_token_shows_in_prompts_that_share_a_step() -> None:
    cost = PrefillCost(10_000.0)
    for at in range(20):
        together = 1 if at % 2 else 16
        for number in range(together):
            seconds = 0.03 + together * 0.08 if number == 0 else 0.016
            cost.add(10, seconds, at + number * 0.016, 26_000)
    assert cost.seconds(10, 26_000) == pytest.approx(0.13, rel=0.2)
    assert cost.share(160, 16 * 26_000) == pytest.approx(16 * 0.095, rel=0.1)


def test_where_a_wave_takes_as_long_as_one_prompt_cached_tokens_are_free() -> None:
    cost = PrefillCost(10_000.0)
    for at in range(20):
        for number in range(1 if at % 2 else 16):
            cost.add(10, 0.0 if number else 0.03, float(at), 26_000)
    assert cost.share(0, 26_000) < 0.001
    assert cost.base == pytest.approx(0.03, rel=0.3)


def test_prompts_that_always_come_alone_teach_no_price_of_cached_tokens() -> None:
    cost = PrefillCost(10_000.0)
    for at in range(50):
        cost.add(10, 0.1, float(at), 26_000)
    assert cost.per_cached == pytest.approx(0.0, abs=1e-12)
    assert cost.seconds(10, 26_000) == pytest.approx(0.1, rel=0.02)


def test_a_cached_token_never_costs_more_than_a_computed_one() -> None:
    cost = PrefillCost(10_000.0)
    for at in range(50):
        tokens, cached = (8000, 0) if at % 2 else (10, 8000 + at)
        cost.add(tokens, 0.4 if cached else 0.2, float(at), cached)
    assert 0.0 < cost.per_cached == cost.per_token
    assert cost.base >= 0.0


def test_an_engine_that_reads_cached_prompts_one_by_one_has_at_most_four_of_them() -> None:
    play = _taught(each=0.08)
    sent = [_cached(play, 20.0, f"t{number}") for number in range(16)]
    assert sent == ["b"] * 4 + [None] * 12


def test_an_engine_that_decodes_beside_gets_as_many_more_as_come_within_a_step() -> None:
    play = _taught(each=0.08)
    play.arrive(18.0, "talk", 10)
    play(18.01, FirstToken("talk"))
    play(19.61, Progress("talk", 11))
    sent = [_cached(play, 20.0, f"t{number}") for number in range(16)]
    assert sent == ["b"] * 6 + [None] * 10


def test_the_next_cached_prompt_goes_when_a_first_token_has_come() -> None:
    play = _taught(each=0.08)
    for number in range(8):
        _cached(play, 20.0, f"t{number}")
    for number in range(4):
        # Earlier than expected: no time that was announced sends it.
        told = play(20.0 + 0.07 * (number + 1), FirstToken(f"t{number}"))
        cause = f"first_token:t{number}"
        assert told == [Dispatch(f"t{number + 4}", "b", "long", cause)]


def test_an_engine_that_takes_all_in_one_step_gets_all_at_once() -> None:
    play = _taught(each=0.0002)
    assert [_cached(play, 20.0, f"t{number}") for number in range(16)] == ["b"] * 16


def test_first_tokens_of_cached_prompts_are_not_late_for_what_was_before_them() -> None:
    play = _taught(each=0.4)
    for number in range(4):
        _cached(play, 20.0, f"t{number}")
    for number in range(4):
        for told in play(20.0 + 0.4 * (number + 1), FirstToken(f"t{number}")):
            assert getattr(told, "what", "") != "first tokens come late"


def test_an_answer_that_cannot_come_in_time_for_its_reading_expires() -> None:
    play = _taught(each=0.5)
    for number in range(4):
        _cached(play, 20.0, f"t{number}")
    play.arrive(20.0, "hurried", _PROMPT, prefix=_BLOCKS, answer_by=20.6)
    assert play.s.next_wakeup() == pytest.approx(20.1, abs=0.03)


def test_little_to_read_is_not_worth_holding_a_prompt_for() -> None:
    play = _taught(each=0.0222)
    sent = [_cached(play, 20.0, f"t{number}") for number in range(16)]
    # A tenth of a second is 10 ms and four of them: five go before it is full.
    assert sent == ["b"] * 5 + [None] * 11
