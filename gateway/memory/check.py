"""The check itself: it hears every reading, and once an hour says what follows from them.

What was found stands until the next hour, in the log once, in `/metrics` and on the live page.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from backends.types import Load
from gateway.memory.signs import Finding, judge
from gateway.memory.usage import Usage

log = logging.getLogger("forebay.memory")


class MemoryCheck:
    """`seats` says how many requests a backend may run at once; `found` is what the last hour
    showed, by backend, where there was anything."""

    def __init__(self, interval: float | None, seats: Callable[[str], int]) -> None:
        self._interval = interval
        self._seats = seats
        self._hours: dict[str, Usage] = {}
        self._before: Mapping[str, Usage] = {}
        self.found: Mapping[str, tuple[Finding, ...]] = {}

    def saw(self, load: Load) -> None:
        usage = self._hours.setdefault(load.backend, Usage())
        usage.saw(load, self._seats(load.backend))

    @property
    def checked(self) -> Iterable[str]:
        """The backends that the last hour was looked at of."""
        return self._before.keys()

    async def run(self) -> None:
        """Look once an interval, until cancelled; at once over when there is none."""
        while self._interval is not None:
            await asyncio.sleep(self._interval)
            self.look()

    def look(self) -> None:
        """End this hour. A backend that was not read in it is forgotten."""
        hour = {name: usage.clear() for name, usage in self._hours.items()}
        gone = [name for name, seen in hour.items() if not seen.readings]
        for name in gone:
            del hour[name], self._hours[name]
        told = {
            name: judge(name, self._seats(name), seen, self._before.get(name))
            for name, seen in hour.items()
        }
        self._before = hour
        self.found = {name: findings for name, findings in told.items() if findings}
        for name, seen in hour.items():
            log.info("backend %s: KV cache %s", name, _summary(seen))
        for name, findings in self.found.items():
            for each in findings:
                log.warning("backend %s: %s", name, each)

    def document(self, backend: str) -> list[dict[str, str]]:
        """What was found of a backend as the live page has it."""
        return [{"sign": one.sign.value, "text": str(one)} for one in self.found.get(backend, ())]


def _summary(seen: Usage) -> str:
    hits = seen.hit_share
    cache = "" if hits is None else f", {hits:.0%} of prompt tokens cached"
    return (
        f"{seen.kv_mean:.0%} used on average, {seen.kv_peak:.0%} at most, "
        f"{seen.preemptions} preemptions, {seen.running_peak} requests at most{cache}"
    )
