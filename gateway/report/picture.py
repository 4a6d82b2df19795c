"""The report as one picture: distribution, stages, and how the day went.

matplotlib is an extra (`pip install forebay[bench]`); it is imported when a picture is wanted.
"""

from pathlib import Path
from typing import Any

from gateway.report.analysis import Analysis, Report
from gateway.report.sample import Sample

INK, MUTED, GRID = "#1f2430", "#8a93a6", "#e6e9f0"
CLASSES = ("#2f6fed", "#e07b39", "#3aa17e", "#9b59b6", "#c0392b")
STAGES = ("#b8c4dd", "#7fa3e0", "#f0b67f", "#b6a6d8", "#3f6fb5", "#8fcfb4")


class NoPictures(Exception):
    """matplotlib is missing; the message says how to get it."""


def draw(analysis: Analysis, path: Path) -> None:
    """Write a PNG. Raises NoPictures, and OSError when the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise NoPictures(
            "pictures need matplotlib: pip install 'forebay[bench]', or leave --png away"
        ) from error
    spacious = ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15)
    figure = Figure(figsize=(12, 7.2), facecolor="white", layout=spacious)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
    _distribution(figure.add_subplot(grid[0, 0]), analysis)
    _hours(figure.add_subplot(grid[0, 1]), analysis.report)
    _stages(figure.add_subplot(grid[1, :]), analysis.report)
    figure.savefig(path, dpi=144, format="png")


def _distribution(axes: Any, analysis: Analysis) -> None:
    """What share of the streams had their first token by when; the day before dotted."""
    _plain(axes, "TTFT distribution (dotted: the span before)")
    for colour, name in zip(CLASSES, analysis.report.classes, strict=False):
        _curve(axes, analysis.now.classes[name].ttft, color=colour, label=name, linewidth=1.8)
        if name in analysis.before.classes:
            before = analysis.before.classes[name].ttft
            _curve(axes, before, color=colour, linestyle=":", linewidth=1.4)
    axes.set_xscale("log")
    _readable(axes.xaxis)
    axes.set_xlabel("milliseconds")
    axes.set_ylim(0, 1.01)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.legend(frameon=False, loc="lower right")


def _curve(axes: Any, sample: Sample, **style: Any) -> None:
    if len(sample):
        values, reached = sample.distribution()
        axes.step(values * 1e3, reached, where="post", **style)


def _hours(axes: Any, report: Report) -> None:
    _plain(axes, "p95 by hour, milliseconds")
    for colour, (name, seen) in zip(CLASSES, report.classes.items(), strict=False):
        points = [(hour, p95 * 1e3) for hour, p95 in enumerate(seen.hourly) if p95 is not None]
        if points:
            hours, tail = zip(*points, strict=True)
            axes.plot(hours, tail, color=colour, marker="o", markersize=3, linewidth=1.6)
            axes.axhline(seen.target * 1e3, color=colour, linestyle="--", linewidth=0.8, alpha=0.6)
            axes.annotate(
                f"{name} target",
                xy=(1, seen.target * 1e3),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 3),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontsize=8,
            )
    axes.set_yscale("log")
    _readable(axes.yaxis)
    axes.set_xlabel("hours since the start")


def _stages(axes: Any, report: Report) -> None:
    """Mean seconds of each stage as one bar per class: the bar's length is the mean TTFT."""
    _plain(axes, "Where the time goes: mean of each stage, milliseconds")
    axes.grid(axis="y", visible=False)
    classes = [(name, seen) for name, seen in report.classes.items() if seen.stages]
    stages = list(dict.fromkeys(stage for _, seen in classes for stage in seen.stages))
    names = [name for name, _ in classes][::-1]
    left = [0.0] * len(classes)
    for colour, stage in zip(STAGES, stages, strict=False):
        widths = [seen.stages.get(stage, 0.0) * 1e3 for _, seen in classes][::-1]
        axes.barh(names, widths, left=left, color=colour, label=stage, height=0.55)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    if stages:
        axes.legend(frameon=False, ncols=len(stages), loc="upper right", bbox_to_anchor=(1, 1.22))


def _readable(axis: Any) -> None:
    """A logarithmic axis in plain numbers, at 1, 2 and 5 of each power of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def _plain(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=12)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.xaxis.label.set_color(MUTED)
