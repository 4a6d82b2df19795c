"""Pictures of a comparison: for each scenario the short requests' TTFT behind each gateway."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.pictures import style


def draw(directory: Path, scenarios: Mapping[str, Any]) -> list[Path]:
    """One picture a scenario. Raises MissingLibrary."""
    return [_scenario(directory, name, told) for name, told in scenarios.items() if told["peers"]]


def _scenario(directory: Path, name: str, scenario: Mapping[str, Any]) -> Path:
    peers = scenario["peers"]
    figure, (short, long) = style.panels(1, 2, size=(10.0, 1.4 + 0.42 * len(peers)))
    for axes, kind in ((short, "short"), (long, "long")):
        for number, (statistic, marker) in enumerate((("p50", "o"), ("p99", "D"))):
            key = f"{kind}_ttft_ms_{statistic}"
            for row, told in enumerate(peers.values()):
                if key in told["median"]:
                    low, high = told["spread"][key]
                    axes.hlines(row, low, high, color=style.COLOURS[number], lw=2, alpha=0.5)
                    axes.plot(told["median"][key], row, marker, color=style.COLOURS[number],
                              label=statistic if not row else None)  # fmt: skip
        axes.set_yticks(range(len(peers)), list(peers) if axes is short else [""] * len(peers))
        axes.invert_yaxis()
        axes.set_xscale("log")
        style.plain_numbers(axes.xaxis)
        axes.grid(visible=True, axis="x")
        axes.set(title=f"{kind} requests", xlabel="TTFT, ms (logarithmic)")
    figure.suptitle(f"{name}: medians of the rounds, lines from lowest to highest", fontsize=11)
    short.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=2, frameon=False)
    return style.save(figure, directory, f"compare-{name}")
