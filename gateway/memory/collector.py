"""The memory check's findings as metrics, read at scrape time."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.memory.check import MemoryCheck
from gateway.memory.signs import Sign


class MemoryCollector(Collector):
    """One row for each sign of each backend that was seen in the last hour."""

    def __init__(self, check: MemoryCheck) -> None:
        self._check = check

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "forebay_memory_sign",
            "1 where the last memory check saw this sign; the log says what to do.",
            labels=["backend", "sign"],
        )
        for backend in self._check.checked:
            seen = {finding.sign for finding in self._check.found.get(backend, ())}
            for sign in Sign:
                family.add_metric([backend, sign.value], float(sign in seen))
        yield family
