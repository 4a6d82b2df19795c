"""Peak hours: which minutes a window means, in which zone, and what holds in them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Config
from gateway.hours import in_force
from gateway.peak import PeakConfig, active, parse

MONDAY = datetime(2027, 3, 1, tzinfo=UTC)


def peak(windows: str, **changes: Any) -> PeakConfig:
    return PeakConfig.model_validate({"windows": windows, "lead": 0} | changes)


@pytest.mark.parametrize(
    ("window", "moment", "expected"),
    [
        ("* * * * *", MONDAY, True),
        ("* 9-17 * * mon-fri", MONDAY.replace(hour=9), True),
        ("* 9-17 * * mon-fri", MONDAY.replace(hour=17, minute=59), True),
        ("* 9-17 * * mon-fri", MONDAY.replace(hour=18), False),
        ("* 9-17 * * mon-fri", MONDAY.replace(day=6, hour=9), False),
        ("*/15 8 * * *", MONDAY.replace(hour=8, minute=45), True),
        ("*/15 8 * * *", MONDAY.replace(hour=8, minute=46), False),
        ("0-29/10 8 * * *", MONDAY.replace(hour=8, minute=20), True),
        ("* * 1 * *", MONDAY, True),
        ("* * 2 * *", MONDAY, False),
        ("* * 2 * mon", MONDAY, True),
        ("* * * dec *", MONDAY, False),
        ("* * * 3 7", MONDAY.replace(day=7), True),
        ("* * * * 0", MONDAY.replace(day=7), True),
        ("30 8; 0 9 * * *", MONDAY, ValueError),
    ],
)
def test_a_window_is_what_cron_says(window: str, moment: datetime, expected: object) -> None:
    if expected is ValueError:
        with pytest.raises(ValueError, match="minute hour day month weekday"):
            peak(window)
    else:
        assert active(peak(window), moment) is expected


def test_windows_are_in_their_own_zone_also_when_clocks_change() -> None:
    office = peak("* 9 * * *", timezone="Europe/Berlin")
    for day in (datetime(2027, 3, 27, tzinfo=UTC), datetime(2027, 3, 29, tzinfo=UTC)):
        hours = [h for h in range(24) if active(office, day + timedelta(hours=h))]
        local = (day + timedelta(hours=hours[0])).astimezone(ZoneInfo("Europe/Berlin"))
        assert local.hour == 9
        assert len(hours) == 1


def test_an_hour_that_a_clock_change_leaves_out_has_no_peak() -> None:
    night = peak("* 2 28 3 *", timezone="Europe/Berlin")
    start = datetime(2027, 3, 27, 22, tzinfo=UTC)
    assert not any(active(night, start + timedelta(minutes=m)) for m in range(600))


def test_it_takes_effect_ahead_of_time() -> None:
    early = peak("* 9 * * *", lead=600)
    nine = MONDAY.replace(hour=9)
    assert not active(early, nine - timedelta(seconds=661))
    assert active(early, nine - timedelta(seconds=600))
    assert not active(early, nine.replace(hour=10))


@given(
    st.sampled_from(["* 9-17 * * mon-fri", "0 0 1 1 *", "*/7 * * * *", "5 4 * * sun"]),
    st.integers(0, 60 * 24 * 365),
)
def test_with_a_lead_it_is_peak_when_any_minute_ahead_is(window: str, minute: int) -> None:
    now = MONDAY + timedelta(minutes=minute)
    cron = parse(window)
    ahead = any(cron.matches(now + timedelta(minutes=m)) for m in range(6))
    assert active(peak(window, lead=300), now) is ahead


def test_limits_fall_and_the_reserve_grows_while_it_lasts() -> None:
    config = Config.model_validate(
        {
            "backends": {
                "a": {"url": "http://h:1", "limit": 64},
                "b": {"url": "http://h:2", "limit": 1},
            },
            "classes": {"short": {"max_prompt_tokens": 9, "limit": 50}, "long": {}},
            "peak": {"windows": "* 9 * * *", "lead": 0},
        }
    )
    assert in_force(config, MONDAY) is config
    busy = in_force(config, MONDAY.replace(hour=9))
    assert {name: backend.limit for name, backend in busy.backends.items()} == {"a": 57, "b": 1}
    assert (busy.classes["short"].limit, busy.classes["long"].limit) == (45, None)
    assert busy.scheduler.kv_reserve == pytest.approx(0.15)
