"""What steering says of itself: for `/ready`, and for `/metrics`."""

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.steering import Steering


def report(steering: Steering) -> dict[str, Any]:
    """For a person: how changes come, who shares, and how far canaries are."""
    control, sharing = steering.control, steering.sharing
    return {
        "changes_come_by": control.noticed_by or None,
        "stray_keys": control.refusals.strays,
        "gateway": sharing.name,
        "gateways": sharing.replicas,
        "open_to_everyone": not control.effective.keys,
        "adapted": {".".join(knob): value for knob, value in steering.adaptation.values.items()},
        "canaries": {
            model: {
                "phase": trial.progress.phase.value if trial.progress else None,
                "share": trial.share,
                "reason": trial.progress.reason if trial.progress else "not begun yet",
            }
            for model, trial in steering.canaries.trials.items()
        },
    }


class SteeringCollector(Collector):
    """Gauges read at scrape time."""

    def __init__(self, steering: Steering) -> None:
        self._steering = steering

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        steering = self._steering
        yield GaugeMetricFamily(
            "forebay_gateways", "Gateways that share, as last seen.", steering.sharing.replicas
        )
        yield GaugeMetricFamily(
            "forebay_stray_keys",
            "Keys under our prefix that change nothing.",
            steering.control.refusals.strays,
        )
        adapted = GaugeMetricFamily(
            "forebay_adapted_setting", "Settings that follow the traffic now.", labels=["setting"]
        )
        for knob, value in steering.adaptation.values.items():
            adapted.add_metric([".".join(knob)], value)
        yield adapted
        share = GaugeMetricFamily(
            "forebay_canary_share_ratio", "Share of the new group.", labels=["model"]
        )
        for model, trial in steering.canaries.trials.items():
            share.add_metric([model], trial.share)
        yield share
