"""What looking costs those who are served: no step of a scrape, and no page, holds the loop long.

Measured in CPU time of this thread, so that a busy machine changes nothing.
"""

from collections.abc import Callable
from time import thread_time
from typing import Any

import orjson

from gateway.metrics import Metrics
from gateway.pace import Pace
from gateway.record import Outcome
from gateway.ui.timeline import KEPT, Second, Timeline
from tests.gateway.report.days import record

LONGEST = 0.002
MODELS = 100
"""Far more than a gateway serves. With the most rows that there may be (MAX_ROWS of each metric,
6 MB of text) putting the finished text together takes 1 to 5 ms."""


def full(metrics: Metrics) -> None:
    """Every metric of requests, of two classes of many models."""
    models = [f"model-{number}" for number in range(MODELS)]
    pace = Pace()
    for number in range(4):
        pace.came(b"data: {}\n\n", 1.0 + number)
    for model in models:
        for service_class in ("short", "long"):
            metrics.observe(record(0.1, model=model, service_class=service_class))
            metrics.observe(
                record(
                    None,
                    model=model,
                    service_class=service_class,
                    status=499,
                    outcome=Outcome.ABANDONED,
                )
            )
            metrics.paced(model, service_class, pace)


def longest_step(coroutine: Any) -> tuple[float, Any]:
    """Run a coroutine that only ever yields its turn; its longest step, and what it returned."""
    longest = 0.0
    while True:
        began = thread_time()
        try:
            coroutine.send(None)
        except StopIteration as end:
            return max(longest, thread_time() - began), end.value
        longest = max(longest, thread_time() - began)


def best_of(times: int, measure: Callable[[], float]) -> float:
    """Garbage collection and cold caches are not what is asked about."""
    return min(measure() for _ in range(times))


def test_no_step_of_a_scrape_takes_two_milliseconds() -> None:
    metrics = Metrics()
    full(metrics)
    _, text = longest_step(metrics.render())
    assert text.count(b"forebay_ttft_seconds_count") == 2 * MODELS
    assert best_of(5, lambda: longest_step(metrics.render())[0]) < LONGEST


def test_an_opened_page_gets_its_fifteen_minutes_in_two_milliseconds() -> None:
    timeline = Timeline()
    for second in range(KEPT):
        timeline.add(Second(float(second), dict.fromkeys(("short", "long"), (1, 2, 3, 4, 0.5))))

    def open_page() -> float:
        began = thread_time()
        orjson.dumps(timeline.document())
        return thread_time() - began

    assert best_of(5, open_page) < LONGEST
