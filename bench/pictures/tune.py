"""Pictures of a search for flags: the response to each flag, and what the comparison found."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pictures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {"ttft_p99_ms": "TTFT p99, ms (logarithmic)", "goodput_per_s": "goodput, requests/s"}


def draw_search(directory: Path, document: Mapping[str, Any]) -> Path:
    """One panel for each flag that was searched. Raises MissingLibrary."""
    summary, detail = document["summary"], document["detail"]
    searched = {name: points for name, points in detail["curves"].items() if len(points) > 1}
    columns = 2 if len(searched) > 1 else 1
    rows = -(-len(searched) // columns)
    figure, panels = style.panels(rows, columns, size=(5.0 * columns, 3.4 * rows))
    for axes, (name, points) in zip(panels, searched.items(), strict=False):
        _response(axes, name, points, document)
    for axes in panels[len(searched) :]:
        axes.set_axis_off()
    figure.suptitle(
        f"{len(detail['candidates'])} of {summary['candidates']} candidates measured: "
        "each point one, line the best with that value",
        fontsize=10,
    )
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return style.save(figure, directory, "tune-response")


def _response(
    axes: "Axes", name: str, points: list[dict[str, Any]], document: Mapping[str, Any]
) -> None:
    summary, detail = document["summary"], document["detail"]
    ttft = summary["objective"] == "ttft_p99_ms"
    ticks = [point["value"] for point in points]
    kinds: dict[str, list[tuple[int, float]]] = {"kept": [], "out": []}
    for row in detail["candidates"]:
        value = row["ttft_p99"] * 1e3 if ttft else row["goodput"]
        out = row["ruled_out_by"] or row["cut_short"]
        kinds["out" if out else "kept"].append((ticks.index(row["flags"][name]), value))
    for kind, marker, colour, label in (
        ("kept", "o", style.COLOURS[0], "measured in full"),
        ("out", "x", style.COLOURS[1], "cut short or ruled out"),
    ):
        places, values = [at for at, _ in kinds[kind]], [value for _, value in kinds[kind]]
        axes.plot(places, values, marker, color=colour, alpha=0.5, markersize=4, label=label)
    best = [abs(point["score"]) if point["allowed"] else float("nan") for point in points]
    axes.plot(range(len(ticks)), best, "-", color=style.COLOURS[0], label="best with this value")
    axes.axhline(summary["defaults"], color=style.INK, lw=1, ls="--", label="engine's defaults")
    axes.set_xticks(range(len(ticks)), [_tick(name, tick) for tick in ticks])
    if ttft:
        axes.set_yscale("log")
        style.plain_numbers(axes.yaxis)
    axes.set(title=f"--{name} (chosen: {_tick(name, summary['best_flags'][name])})",
             ylabel=_LABELS[summary["objective"]])  # fmt: skip
    axes.grid(visible=True, axis="y")


def _tick(name: str, value: float) -> str:
    return "none" if name == "long-prefill-token-threshold" and not value else f"{value:g}"
