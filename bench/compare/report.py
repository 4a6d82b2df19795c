"""From the rounds' details to the figures of the result file and the table. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bench.compare.scenarios import SCENARIOS

CLASSES = ("short", "long")
LATENCIES = (("ttft_ms", "p50"), ("ttft_ms", "p95"), ("ttft_ms", "p99"), ("tpot_ms", "p50"))

Rounds = Sequence[dict[str, Any]]


def figures(found: dict[str, Any]) -> dict[str, float]:
    """One round's: `short_ttft_ms_p99`, …, `errors`, and the generator's own lateness."""
    flat: dict[str, float] = {}
    for name in CLASSES:
        numbers = found["classes"].get(name, {})
        for latency, statistic in LATENCIES:
            if numbers.get(latency):
                flat[f"{name}_{latency}_{statistic}"] = numbers[latency][statistic]
    flat["requests"] = found["all"]["requests"]
    flat["errors"] = sum(found["all"]["errors"].values())
    flat["goodput_per_s"] = found["all"]["goodput_per_s"]
    flat["generator_lateness_ms_p99"] = found["generator"]["lateness_ms"].get("p99", 0.0)
    return flat


def of_peer(rounds: Rounds) -> dict[str, Any]:
    """`median` and `spread` (lowest, highest) of each figure over the rounds."""
    each = [figures(found) for found in rounds]
    names = [name for name in each[0] if all(name in one for one in each)]
    return {
        "median": {name: round(median(one[name] for one in each), 3) for name in names},
        "spread": {
            name: [min(one[name] for one in each), max(one[name] for one in each)] for name in names
        },
        "rounds": each,
    }


def of_scenarios(rounds: Mapping[str, Mapping[str, Rounds]]) -> dict[str, Any]:
    """`detail.scenarios`: what each is, and its peers."""
    return {
        name: {
            "about": SCENARIOS[name].about,
            "engines": SCENARIOS[name].preset,
            "peers": {peer: of_peer(found) for peer, found in peers.items()},
        }
        for name, peers in rounds.items()
    }


def summary(scenarios: Mapping[str, Any]) -> dict[str, float]:
    """Flat medians: `hol_35_vllm_router_short_ttft_ms_p99`."""
    return {
        f"{scenario}_{peer}_{name}".replace("-", "_"): value
        for scenario, told in scenarios.items()
        for peer, numbers in told["peers"].items()
        for name, value in numbers["median"].items()
    }


def table(name: str, scenario: Mapping[str, Any]) -> Table:
    """Medians of the rounds, with the lowest and highest of the short class's p99."""
    shown = Table(title=f"{name}: {scenario['about']}", box=SIMPLE, pad_edge=False)
    shown.add_column("TTFT, ms", no_wrap=True)
    for column in ("short p50", "p95", "p99", "(rounds)", "long p50", "p99", "TPOT", "errors"):
        shown.add_column(column, justify="right", no_wrap=True)
    for peer, numbers in scenario["peers"].items():
        middle = numbers["median"]
        low, high = numbers["spread"].get("short_ttft_ms_p99", (0.0, 0.0))
        cells = [
            *(_cell(middle, f"short_ttft_ms_{which}") for which in ("p50", "p95", "p99")),
            f"{_number(low)}–{_number(high)}",
            *(_cell(middle, f"long_ttft_ms_{which}") for which in ("p50", "p99")),
            _cell(middle, "short_tpot_ms_p50"),
            f"{middle['errors']:g}",
        ]
        shown.add_row(peer, *cells)
    return shown


def _cell(numbers: Mapping[str, float], name: str) -> str:
    return _number(numbers[name]) if name in numbers else "–"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
