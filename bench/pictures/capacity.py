"""Picture of a capacity plan: goodput and TTFT against engines, the answers marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pictures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(path: Path, document: dict[str, Any]) -> Path:
    """Raises MissingLibrary."""
    summary, detail = document["summary"], document["detail"]
    points = detail["curve"]
    engines = [point["engines"] for point in points]
    figure, (goodput, latency) = style.panels(2, 1, size=(7.2, 6.4))
    goodput.plot(
        engines, [p["goodput_rps"] for p in points], marker="o", color=style.COLOURS[0],
        label="good: first token in time",
    )  # fmt: skip
    goodput.axhline(summary["qps"], color=style.INK, lw=0.8, label="offered")
    goodput.set(title=f"{summary['qps']:g} requests a second, {detail['objective']} ms",
                ylabel="requests per second", ylim=(0, summary["qps"] * 1.08))  # fmt: skip
    for number, statistic in enumerate(("mean", "p99")):
        latency.plot(
            engines, [p[statistic] for p in points], marker=style.MARKERS[number],
            color=style.COLOURS[number], label=f"TTFT {statistic}",
        )  # fmt: skip
    latency.set_yscale("log")
    style.plain_numbers(latency.yaxis)
    latency.set(xlabel="engines", ylabel="TTFT, ms (logarithmic)")
    for axes in (goodput, latency):
        _mark(axes, summary)
        axes.grid(visible=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return style.save(figure, path.parent, path.stem)


def _mark(axes: "Axes", summary: dict[str, float]) -> None:
    """The two answers, apart where they are the same."""
    answer, said = summary["engines"], summary["engines_rule"]
    axes.axvline(answer, color=style.COLOURS[2], lw=2, label=f"simulation: {answer:g}")
    axes.axvline(said, color=style.COLOURS[3], lw=2, ls="--", label=f"rule: {said:g}")
