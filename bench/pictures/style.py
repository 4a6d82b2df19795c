"""The look of every picture: light, few lines, labelled axes, colours that colour-blind see apart.

Figures are made without pyplot, so that nothing is kept in a global list of figures.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Beside the colours, so that a print in grey can be read as well."""

WIDE = 400.0
"""Over this ratio of highest to lowest a logarithmic axis has room for powers of ten only."""

INK, FAINT = "#333333", "#dddddd"
DPI = 120
_LOOK: Any = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "font.size": 10,
    "grid.color": FAINT,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class MissingLibrary(Exception):
    """matplotlib is not installed; the message says how it is."""


def check() -> None:
    """Raises MissingLibrary: before a run is better than after it."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise MissingLibrary("pictures need matplotlib: pip install 'forebay[bench]'") from error


def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (7.2, 4.0)
) -> tuple["Figure", list["Axes"]]:
    """An empty figure and its axes, row by row. Raises MissingLibrary."""
    check()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_LOOK):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [axis for row in axes for axis in row]


def plain_numbers(axis: Any) -> None:
    """A logarithmic axis in numbers that people read: 0.5, 20, 1,000. Call it after drawing."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    wide = high / low > WIDE if low > 0 else False
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def legend(axes: "Axes", *, columns: int = 1) -> None:
    """Outside the plot, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=columns, frameon=False)


def save(figure: "Figure", directory: Path, name: str) -> Path:
    """Write it as PNG and return where."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.png"
    figure.savefig(path, dpi=DPI)
    return path


def colour(names: Sequence[str], name: str) -> str:
    return COLOURS[list(names).index(name) % len(COLOURS)]


def marker(names: Sequence[str], name: str) -> str:
    return MARKERS[list(names).index(name) % len(MARKERS)]
