"""What is advised after an hour such as this one: a playbook."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import Load
from gateway.memory.signs import LEAST, Finding, Sign, judge
from gateway.memory.usage import Usage
from tests.gateway.memory.hours import BUSY, QUIET, hour


def asked(*phases: tuple[int, Load], seats: int = 16) -> dict[Sign, Finding]:
    found = judge("long-0", seats, hour(*phases, seats=seats), None)
    return {finding.sign: finding for finding in found}


def test_a_healthy_hour_asks_for_nothing() -> None:
    assert asked((3000, BUSY), (600, QUIET)) == {}


def test_preempted_requests_ask_for_as_many_as_fit_by_what_each_takes() -> None:
    """Ten requests at 99%: each takes 9.9%, so nine leave 5% free."""
    full = replace(BUSY, running=10, kv_usage=0.99)
    found = asked((1800, full), (1800, replace(full, preemptions=40)))
    assert set(found) == {Sign.PREEMPTING}, "a full cache is explained by it"
    finding = found[Sign.PREEMPTING]
    assert (finding.setting, finding.to) == ("backends.long-0.limit", "9")
    assert finding.seen.startswith("40 requests were preempted")


def test_preemptions_without_a_full_cache_in_any_reading_ask_for_one_fewer() -> None:
    calm = replace(BUSY, running=10, kv_usage=0.2)
    found = asked((1800, calm), (1800, replace(calm, preemptions=3)))
    assert found[Sign.PREEMPTING].to == "9"


def test_a_full_cache_without_preemptions_asks_for_room_for_one_more() -> None:
    """Eight requests at 97%: seven leave 5% and more."""
    found = asked((3600, replace(BUSY, kv_usage=0.97)))
    assert set(found) == {Sign.FULL}
    assert (found[Sign.FULL].setting, found[Sign.FULL].to) == ("backends.long-0.limit", "7")


def test_a_moment_of_fullness_is_no_sign() -> None:
    assert asked((30, replace(BUSY, kv_usage=0.97)), (3570, BUSY)) == {}


def test_waiting_beside_free_memory_and_free_seats_is_what_fragmentation_was() -> None:
    blocked = replace(BUSY, waiting=3, kv_usage=0.8)
    found = asked((400, blocked), (3200, BUSY))
    assert set(found) == {Sign.STRANDED}
    assert "11% of the readings" in found[Sign.STRANDED].seen


def test_waiting_for_a_seat_is_not_stranded_memory() -> None:
    assert asked((400, replace(BUSY, running=16, waiting=3, kv_usage=0.8)), (3200, BUSY)) == {}


def test_waiting_beside_a_cache_half_free_is_not_for_memory() -> None:
    found = asked((400, replace(BUSY, waiting=3, kv_usage=0.3)), (3200, BUSY))
    assert set(found) == {Sign.NOT_MEMORY}
    assert found[Sign.NOT_MEMORY].setting == "--max-num-batched-tokens"


def test_all_seats_taken_in_a_nearly_empty_cache_ask_for_more_seats() -> None:
    found = asked((3600, replace(BUSY, running=16, kv_usage=0.2)))
    assert set(found) == {Sign.IDLE}
    assert (found[Sign.IDLE].setting, found[Sign.IDLE].to) == ("backends.long-0.limit", "32")
    nearly = asked((3600, replace(BUSY, running=16, kv_usage=0.34)), (1, BUSY))
    assert nearly == {}, "the peak counts, not the mean"


def test_a_prefix_cache_that_was_lost_to_running_requests() -> None:
    full = replace(BUSY, kv_usage=0.96)
    usage = Usage()
    told = replace(BUSY, prefix_queries=1000, prefix_hits=0)
    before = hour((1, BUSY), (1800, replace(told, prefix_hits=600)), usage=usage)
    later = {"prefix_queries": 2000, "prefix_hits": 650}
    phases = (3500, replace(BUSY, **later)), (100, replace(full, **later))
    now = hour(*phases, usage=usage)
    found = {finding.sign: finding for finding in judge("long-0", 16, now, before)}
    assert set(found) == {Sign.FULL, Sign.CACHE_LOST}
    assert found[Sign.CACHE_LOST].seen.startswith("5% of prompt tokens")
    assert "60% the hour before" in found[Sign.CACHE_LOST].seen
    assert judge("long-0", 16, now, None)[0].sign is Sign.FULL, "nothing to compare with"


def test_too_few_readings_say_nothing() -> None:
    worst = replace(BUSY, waiting=5, kv_usage=1.0)
    phases = ((1, worst), (LEAST - 2, replace(worst, preemptions=9)))
    assert asked(*phases) == {}
    assert asked(*phases, (1, worst)) != {}


def test_an_engine_that_began_anew_counts_from_nothing() -> None:
    seen = hour((2, replace(BUSY, preemptions=500)), (2, replace(BUSY, preemptions=2)))
    assert seen.preemptions == 2


@pytest.mark.parametrize("sign", list(Sign))
def test_every_sign_is_told_with_a_setting_and_a_reason(sign: Sign) -> None:
    """The documentation has each of them."""
    from tests.deploy.files import ROOT

    assert f"`{sign.value}`" in (ROOT / "docs/tuning.md").read_text()


loads = st.builds(
    Load,
    st.just("long-0"),
    st.just(0.0),
    running=st.integers(0, 40),
    waiting=st.integers(0, 5),
    kv_usage=st.floats(0, 1),
    preemptions=st.integers(0, 5),
    in_flight=st.just(0),
    prefix_queries=st.integers(0, 9),
    prefix_hits=st.integers(0, 9),
)


@given(st.lists(st.tuples(st.integers(1, 200), loads), min_size=1, max_size=6), st.integers(1, 40))
def test_a_limit_that_is_advised_is_one_and_goes_the_way_that_the_sign_means(
    phases: list[tuple[int, Load]], seats: int
) -> None:
    for sign, finding in asked(*phases, seats=seats).items():
        if finding.setting == "backends.long-0.limit":
            assert int(finding.to) >= 1
            if sign is Sign.IDLE:
                assert int(finding.to) > seats
            else:
                assert int(finding.to) <= max(1, seats - 1)
