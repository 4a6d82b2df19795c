"""What is recommended, for `/metrics`. Read at scrape time."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.tuning.advisor import Advisor


class AdviceCollector(Collector):
    """Each engine's share of its GPU's memory: what it takes, and what the rule would have."""

    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        shares = GaugeMetricFamily(
            "forebay_gpu_memory_utilization_ratio",
            "The share of its GPU's memory that an engine takes, and the one recommended.",
            labels=["backend", "kind"],
        )
        for advice in self._advisor.advices():
            shares.add_metric([advice.backend, "present"], advice.present)
            shares.add_metric([advice.backend, "recommended"], advice.wanted)
        yield shares
