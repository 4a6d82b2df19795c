"""What is known of the traffic to one backend, wherever it flows.

A backend's life needs to know whether it is in use, since when not, and when it last spoke. With
one process its `Client` knows. With relay processes each of them has a client of its own and
reports; `TrafficReports` adds those up, together with this process's own (probes of warmth).
All times are of the monotonic clock, which the processes of one machine share.
"""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Protocol


class Traffic(Protocol):
    """One backend's traffic."""

    @property
    def in_flight(self) -> int:
        """Exchanges that are open."""

    @property
    def idle_since(self) -> float | None:
        """When the last exchange began or ended; None while one is open."""

    @property
    def heard_at(self) -> float:
        """When body bytes last came; 0 if never."""

    async def until_unused(self, within: float) -> bool:
        """Wait until no exchange is open; False when it took longer than so many seconds."""


@dataclass(frozen=True, slots=True)
class _Report:
    in_flight: int
    heard_at: float
    used_at: float


class ReportedTraffic:
    """A backend's traffic as relay processes report it, over this process's own."""

    def __init__(self, own: Traffic) -> None:
        self._own = own
        self._reports: dict[str, _Report] = {}
        self._heard_at = self._used_at = 0.0
        self._changed = asyncio.Event()

    def report(self, source: str, in_flight: int, heard_at: float, used_at: float) -> None:
        """What relay process `source` has now; replaces what it said before."""
        self._reports[source] = _Report(in_flight, heard_at, used_at)
        self._note(heard_at, used_at)

    def forget(self, source: str) -> None:
        """The process is gone, and its exchanges with it, now."""
        gone = self._reports.pop(source, None)
        if gone is not None:
            self._note(gone.heard_at, monotonic() if gone.in_flight else gone.used_at)

    @property
    def in_flight(self) -> int:
        return self._own.in_flight + self._reported()

    @property
    def idle_since(self) -> float | None:
        own = self._own.idle_since
        return None if own is None or self._reported() else max(own, self._used_at)

    @property
    def heard_at(self) -> float:
        return max(self._own.heard_at, self._heard_at)

    async def until_unused(self, within: float) -> bool:
        deadline = monotonic() + within
        while await self._own.until_unused(deadline - monotonic()):
            if not self._reported():
                return True
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return False

    def _reported(self) -> int:
        return sum(report.in_flight for report in self._reports.values())

    def _note(self, heard_at: float, used_at: float) -> None:
        self._heard_at = max(self._heard_at, heard_at)
        self._used_at = max(self._used_at, used_at)
        self._changed.set()


class TrafficReports:
    """The reported traffic of every backend of a Fleet that has relay processes."""

    def __init__(self) -> None:
        self._backends: dict[str, ReportedTraffic] = {}

    def begin(self, backend: str, own: Traffic) -> ReportedTraffic:
        """The traffic of a backend that begins its life (again) here."""
        self._backends[backend] = ReportedTraffic(own)
        return self._backends[backend]

    def report(
        self, source: str, backend: str, *, in_flight: int, heard_at: float, used_at: float
    ) -> None:
        """What relay process `source` has open to a backend; of one that is gone: nothing."""
        traffic = self._backends.get(backend)
        if traffic is not None:
            traffic.report(source, in_flight, heard_at, used_at)

    def forget(self, source: str) -> None:
        """A relay process is gone."""
        for traffic in self._backends.values():
            traffic.forget(source)

    def end(self, backend: str) -> None:
        """The backend is gone."""
        self._backends.pop(backend, None)
