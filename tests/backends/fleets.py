"""A fleet under test: quick settings, and a record of what it reports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from backends.client import ClientLimits
from backends.fleet import Fleet
from backends.settings import FleetSettings, ScrapeSettings, WarmSettings
from backends.types import BackendSpec, BackendStatus, Load, State, Timeouts
from tests.backends.scripted import Collector, start, until

FAST = FleetSettings(
    warm=WarmSettings(requests=4, rounds=2, tolerance=0, keep_after=None, time_limit=5),
    scrape=ScrapeSettings(interval=60),
    client=ClientLimits(spare=0),
    probe_timeout=2,
    health_interval=30,
    health_timeout=0.2,
    backoff_first=0.01,
    backoff_max=0.05,
)


class Watch:
    """Records the statuses that a fleet reports."""

    def __init__(self) -> None:
        self.seen: list[BackendStatus] = []
        self.loads: list[Load] = []

    def __call__(self, status: BackendStatus) -> None:
        self.seen.append(status)

    def states(self, name: str = "b1") -> list[str]:
        return [status.state.value for status in self.seen if status.spec.name == name]

    async def until(self, state: State, *, after: int = 0, name: str = "b1") -> BackendStatus:
        """The first status of this state beyond the first `after` statuses."""

        def found() -> list[BackendStatus]:
            return [s for s in self.seen[after:] if s.state is state and s.spec.name == name]

        await until(lambda: bool(found()))
        return found()[0]


@asynccontextmanager
async def fleet_of(
    *specs: BackendSpec, settings: FleetSettings = FAST, rng: Random | None = None
) -> AsyncIterator[tuple[Fleet, Watch]]:
    watch = Watch()
    fleet = Fleet(
        specs,
        settings,
        watch,
        lambda _, coro: start(coro),
        on_load=watch.loads.append,
        rng=rng or Random(7),
    )
    await fleet.start()
    try:
        yield fleet, watch
    finally:
        await fleet.stop()
        for status in fleet.statuses():
            assert fleet.client(status.spec.name).in_flight == 0


async def ask(fleet: Fleet, name: str = "b1") -> bytes:
    sink = Collector()
    stream = await fleet.client(name).open(
        "/v1/completions", b'{"prompt": "a b c"}', timeouts=Timeouts()
    )
    await stream.relay(sink)
    return sink.data
