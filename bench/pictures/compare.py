"""Pictures of a comparison: for each scenario the short requests' TTFT behind each gateway."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pictures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(directory: Path, scenarios: Mapping[str, Any]) -> list[Path]:
    """One picture a scenario. Raises MissingLibrary."""
    return [_scenario(directory, name, told) for name, told in scenarios.items() if told["peers"]]


def _scenario(directory: Path, name: str, scenario: Mapping[str, Any]) -> Path:
    peers = scenario["peers"]
    figure, (short, long) = style.panels(1, 2, size=(10.0, 1.7 + 0.42 * len(peers)))
    for axes, kind in ((short, "short"), (long, "long")):
        for number, (statistic, marker) in enumerate((("p50", "o"), ("p99", "D"))):
            _points(axes, peers, f"{kind}_ttft_ms_{statistic}", (style.COLOURS[number], marker))
        axes.set_yticks(range(len(peers)), list(peers) if axes is short else [""] * len(peers))
        axes.set_ylim(len(peers) - 0.5, -0.5)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.2, max(high * 1.2, low * 6))
        style.plain_numbers(axes.xaxis)
        axes.grid(visible=True, axis="x")
        axes.set(title=f"{kind} requests", xlabel="TTFT, ms (logarithmic)")
    figure.suptitle(f"{name}: {scenario['about']}", fontsize=10)
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], marker=marker, linestyle="-", color=colour, label=label)
        for marker, colour, label in (
            ("o", style.COLOURS[0], "p50, median of the rounds; line: lowest to highest"),
            ("D", style.COLOURS[1], "p99"),
        )
    ]
    figure.legend(handles=keys, loc="outside lower left", ncols=2, frameon=False)
    return style.save(figure, directory, f"compare-{name}")


def _points(axes: "Axes", peers: Mapping[str, Any], key: str, look: tuple[str, str]) -> None:
    colour, marker = look
    for row, told in enumerate(peers.values()):
        if key in told["median"]:
            low, high = told["spread"][key]
            axes.hlines(row, low, high, color=colour, lw=2, alpha=0.5)
            axes.plot(told["median"][key], row, marker, color=colour)
