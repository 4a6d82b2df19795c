"""Announced peak hours: when they are, and what they change. Pure; time is an argument.

A window is a cron expression, `minute hour day month weekday`: every minute that it matches is
peak time. Source: "+10% reserve, util −0.02…−0.03": vLLM's own memory share cannot be changed
while it runs, so the reserve is taken where Forebay can take it: fewer requests in flight, and
more of the KV cache that must be free before a long prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.schema import Schema, Share

_RANGES = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_WORDS = {
    "weekday": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
    "month": (
        *("", "jan", "feb", "mar", "apr", "may", "jun"),
        *("jul", "aug", "sep", "oct", "nov", "dec"),
    ),
}


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes that one expression matches."""

    minute: frozenset[int]
    hour: frozenset[int]
    day: frozenset[int]
    month: frozenset[int]
    weekday: frozenset[int]
    either_day: bool
    """As cron has it: with both days given, one of them is enough."""

    def matches(self, at: datetime) -> bool:
        day = at.day in self.day
        weekday = (at.weekday() + 1) % 7 in self.weekday
        return (
            at.minute in self.minute
            and at.hour in self.hour
            and at.month in self.month
            and (day or weekday if self.either_day else day and weekday)
        )


def parse(expression: str) -> Cron:
    """Raises ValueError that says what is wrong with the expression."""
    parts = expression.split()
    if len(parts) != len(_RANGES):
        raise ValueError(
            f"a window is `minute hour day month weekday`, as `* 9-17 * * mon-fri`; "
            f"not {expression!r}"
        )
    fields = {name: _field(name, part) for name, part in zip(_RANGES, parts, strict=True)}
    fields["weekday"] = frozenset(day % 7 for day in fields["weekday"])
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    return Cron(**fields, either_day=either)


def _field(name: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for piece in text.lower().split(","):
        span, slash, step = piece.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            raise ValueError(f"{name}: {piece!r}: after the / comes a step, as */15")
        low, high = _RANGES[name]
        if span != "*":
            first, dash, last = span.partition("-")
            low = _number(name, first)
            high = _number(name, last) if dash else (high if slash else low)
        if low > high:
            raise ValueError(f"{name}: {piece!r} runs backwards: write two ranges with a comma")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(name: str, text: str) -> int:
    low, high = _RANGES[name]
    words = _WORDS.get(name, ())
    value = words.index(text) if text in words and text else int(text) if text.isdigit() else -1
    if not low <= value <= high:
        names = f" or {', '.join(filter(None, words))}" if words else ""
        raise ValueError(f"{name}: {text!r} is not {low} to {high}{names}")
    return value


def _windows(value: Any) -> Any:
    """`; ` stands between windows, because commas have a meaning inside one."""
    if isinstance(value, str):
        return tuple(piece.strip() for piece in value.split(";") if piece.strip())
    return value


def _window(value: str) -> str:
    parse(value)
    return value


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no such time zone: {value!r}; write one as Europe/Berlin") from error
    return value


Windows = Annotated[
    tuple[Annotated[str, AfterValidator(_window)], ...],
    BeforeValidator(_windows),
    Field(description="cron expressions with `;` between: each minute that one matches"),
]
Zone = Annotated[
    str, AfterValidator(_zone), Field(description="the windows' zone, as Europe/Berlin")
]


class PeakConfig(Schema):
    """When peak hours are, and what is held back in them."""

    windows: Windows = ()
    timezone: Zone = "UTC"
    lead: Annotated[
        float, Field(ge=0, le=86_400, description="seconds before a window that it takes effect")
    ] = 300.0
    limit_share: Annotated[
        float,
        Field(gt=0, le=1, description="backends' and classes' limits become this share of theirs"),
    ] = 0.9
    kv_reserve: Annotated[
        Share, Field(description="added to `scheduler.kv_reserve` while it lasts")
    ] = 0.1


def active(peak: PeakConfig, now: datetime) -> bool:
    """Whether it is peak time, or will be within the lead."""
    return within(peak.windows, peak.timezone, now, timedelta(seconds=peak.lead))


def within(
    windows: Sequence[str], timezone: str, now: datetime, lead: timedelta = timedelta()
) -> bool:
    """Whether a window is open now, or will be within the lead."""
    if not windows:
        return False
    expressions = tuple(map(parse, windows))
    minute = now.astimezone(ZoneInfo("UTC")).replace(second=0, microsecond=0)
    zone, end = ZoneInfo(timezone), now + lead
    while minute <= end:
        # Step in UTC: local time has hours that come twice, or not at all.
        local = minute.astimezone(zone)
        if any(expression.matches(local) for expression in expressions):
            return True
        minute += timedelta(minutes=1)
    return False
