"""A change of a setting on trial: made as `forebay ctl set` does, followed in the request log, and
taken back when it is shown to be worse, when too little came to tell, or when this program is
stopped before it knows. What is judged is in `gateway.recalibration.trial`.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import typer

from gateway.commands.making import Asked, make
from gateway.commands.shared import give_up, with_redis
from gateway.control import desk
from gateway.control.desk import Plan, Refused, Situation
from gateway.control.keys import full
from gateway.recalibration.proposal import Change
from gateway.recalibration.tail import Tail
from gateway.recalibration.trial import Trial
from gateway.report.lines import Log

LOOKS = 20
"""How often the log is looked at in the time of a trial."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a change is made, whose name it has, and the log that shows what came of it."""

    redis: str
    name: str | None
    logs: tuple[Path, ...]


def try_change(change: Change, site: Site, span: float) -> None:
    """Make the change, and keep it only if it is not shown to be worse; else this ends the
    program, the change taken back."""
    trial, tail = Trial(change), Tail([path for path in site.logs if path.suffix != ".gz"])
    began = time.time()
    trial.saw_before(line for line in Log(site.logs) if began - span <= line.time < began)
    if (why := trial.nothing_before()) is not None:
        give_up(f"not tried: {why}")
    situation = with_redis(site.redis, desk.look)
    had, version = _value(situation, change), situation.version.number
    with _told_to_stop() as stop:
        _set(change, site, version)
        typer.echo(f"on trial for {span:.0f} s")
        why = _follow(trial, tail, span, stop)
        if why is not None:
            _take_back(change, site, had, why)
    if why is not None:
        give_up(f"taken back: {why}")
    typer.echo(f"kept: not worse in {trial.after.ended} requests")


def _follow(trial: Trial, tail: Tail, span: float, stop: Event) -> str | None:
    """Look again and again; returns why the change is to be taken back, once that is known."""
    end = time.monotonic() + span
    while (left := end - time.monotonic()) > 0:
        if stop.wait(min(left, span / LOOKS)):
            return "stopped before the end of the trial"
        trial.saw_after(tail.lines())
        if (why := trial.verdict()) is not None:
            return why
    return trial.verdict(last=True) or trial.nothing_after()


@contextmanager
def _told_to_stop() -> Iterator[Event]:
    """Set by Ctrl-C and by SIGTERM, by which systemd and Kubernetes stop what they run. Neither
    interrupts the change, or the taking back of it."""
    stop = Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _value(situation: Situation, change: Change) -> str:
    """What Redis has there; "" where the file's value is in force."""
    return (situation.hashes.get(full(change.key)) or {}).get(change.field, "")


def _set(change: Change, site: Site, version: int) -> None:
    """Only if nobody has changed anything since that version."""

    def planned(situation: Situation) -> Plan:
        return desk.change(situation, change.key, {change.field: str(change.after)})

    asked = Asked("", note="recalibrated, on trial", name=site.name, version=version)
    with_redis(site.redis, lambda client: make(client, planned, asked))


def _take_back(change: Change, site: Site, had: str, why: str) -> None:
    """Only this field, and only if nobody has set it since: what others changed is theirs."""

    def planned(situation: Situation) -> Plan:
        if (now := _value(situation, change)) != str(change.after):
            raise Refused(f"{change.key} {change.field} is {now!r} by now: left as it is ({why})")
        return desk.change(situation, change.key, {change.field: had})

    asked = Asked("", note=f"trial taken back: {why}", name=site.name)
    with_redis(site.redis, lambda client: make(client, planned, asked))
