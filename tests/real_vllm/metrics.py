"""Reads a server's Prometheus page: sums of a metric's samples that carry the given labels."""

import time
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families


class Metrics:
    """The page of one server, fetched anew for each question."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/metrics"

    def total(self, sample: str, **labels: str) -> float:
        """The sum over all samples of this name whose labels include the given ones.

        Fails when the server has no such metric: a misspelt one would be zero for ever.
        """
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            page = answer.read().decode()
        name = sample.removesuffix("_total")
        (family,) = (f for f in text_string_to_metric_families(page) if f.name == name)
        return sum(
            found.value
            for found in family.samples
            if found.name == sample and labels.items() <= found.labels.items()
        )


def seconds_until(condition: Callable[[], bool], *, within: float) -> float:
    """How long it took for the condition to hold. Fails when it took longer than `within`."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < within, f"did not happen within {within} s"
        time.sleep(0.02)
    return time.monotonic() - began
