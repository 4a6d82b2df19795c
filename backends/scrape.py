"""Reading an engine's own metrics, and comparing them with our ledger.

Our in-flight counts are the truth that requests are sent by; these are only told on, and compared.
A vLLM metrics page has thousands of lines, and parsing it whole would stop the event loop: the few
lines wanted are cut out first, and only they are parsed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from time import monotonic

from prometheus_client.parser import text_string_to_metric_families

from backends.errors import NotServing
from backends.lifecycle import Lifecycle
from backends.pages import lines_of
from backends.settings import ScrapeSettings
from backends.types import Load, State

log = logging.getLogger("forebay.backends")

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
STARTED = "process_start_time_seconds"
_WANTED = (RUNNING, WAITING, KV_USAGE, PREEMPTIONS, PREFIX_QUERIES, PREFIX_HITS, STARTED)


class Scrape:
    """Reads one backend's metrics for as long as it is READY. `last` is the latest reading."""

    def __init__(
        self,
        life: Lifecycle,
        settings: ScrapeSettings,
        on_load: Callable[[Load], None] | None = None,
    ) -> None:
        self.last: Load | None = None
        self._life = life
        self._settings = settings
        self._on_load = on_load
        self._drift = DriftWatch(settings)
        self._process: tuple[int, float | None] = (0, None)

    async def run(self) -> None:
        """Read until cancelled. A page that does not come, or says nothing, is left out."""
        while True:
            await asyncio.sleep(self._settings.interval)
            if self._life.status.state is not State.READY:
                continue
            try:
                page = await self._life.probe.page("/metrics")
            except NotServing:
                continue
            values = read(page or b"")
            if RUNNING in values:
                self._tell(values)

    def _tell(self, values: dict[str, list[float]]) -> None:
        started = values.get(STARTED)
        load = Load(
            backend=self._life.name,
            at=monotonic(),
            running=int(sum(values[RUNNING])),
            waiting=int(sum(values.get(WAITING, ()))),
            kv_usage=max(values.get(KV_USAGE, ()), default=0.0),
            preemptions=int(sum(values.get(PREEMPTIONS, ()))),
            in_flight=self._life.traffic.in_flight,
            started_at=started[0] if started else None,
            prefix_queries=int(sum(values.get(PREFIX_QUERIES, ()))),
            prefix_hits=int(sum(values.get(PREFIX_HITS, ()))),
        )
        self.last = load
        if self._on_load is not None:
            self._on_load(load)
        for line in self._drift.observe(load):
            log.warning("backend %s: %s", load.backend, line)
        self._notice_restart(load.started_at)

    def _notice_restart(self, started_at: float | None) -> None:
        """Two starts seen with no proof between them: traffic goes to an unproved server."""
        (proofs, before), self._process = self._process, (self._life.proofs, started_at)
        known = before is not None and started_at is not None
        if known and before != started_at and proofs == self._life.proofs:
            self._life.restarted()


class DriftWatch:
    """Decides when a difference between the engine's count and ours is worth a line."""

    def __init__(self, settings: ScrapeSettings) -> None:
        self._settings = settings
        self._since: float | None = None
        self._told = False

    def observe(self, load: Load) -> Iterable[str]:
        """The lines to log after this reading: none, nearly always."""
        if abs(load.drift) <= self._settings.drift_requests:
            told, self._told, self._since = self._told, False, None
            return ["its request count agrees with ours again"] if told else []
        if self._since is None:
            self._since = load.at
        if self._told or load.at - self._since < self._settings.drift_after:
            return []
        self._told = True
        engine = load.running + load.waiting
        return [f"it counts {engine} requests and we {load.in_flight}, for too long a time"]


def read(page: bytes) -> dict[str, list[float]]:
    """The values of the wanted metrics, one for each label set, by name."""
    values: dict[str, list[float]] = defaultdict(list)
    lines = [line for name in _WANTED for line in lines_of(page, name)]
    try:
        text = b"".join(lines).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in _WANTED:
                    values[sample.name].append(sample.value)
    except ValueError:
        return {}
    return dict(values)
