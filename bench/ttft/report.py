"""From readings to the figures of a result file and its table. Pure.

A *cell* is one set-up, size and concurrency, named `default_26k_c1`.
"""

from collections.abc import Mapping
from statistics import median, quantiles
from typing import Any

from rich.table import Table

from bench.ttft.measure import Reading, Waves

Detail = dict[str, dict[str, Any]]


def cell_name(setup: str, size: str, concurrency: int) -> str:
    return f"{setup}_{size}_c{concurrency}"


def cell(waves: Mapping[str, Waves]) -> dict[str, Any]:
    """The figures of one cell. TTFTs are medians over all requests of a side.

    `ratio_quartiles` are those of the rounds' own ratios: how far the machine's noise moves them.
    """
    ratios = [
        _ttft_ms(forebay) / _ttft_ms(direct)
        for forebay, direct in zip(waves["forebay"], waves["direct"], strict=True)
    ]
    flat = {name: [reading for wave in of for reading in wave] for name, of in waves.items()}
    direct, forebay, ids = (_ttft_ms(flat[name]) for name in ("direct", "forebay", "ids"))
    return {
        "requests": len(flat["forebay"]),
        "ttft_direct_ms": direct,
        "ttft_forebay_ms": forebay,
        "ttft_ids_ms": ids,
        "ratio": forebay / direct,
        "ratio_quartiles": quantiles(ratios, method="inclusive"),
        "share_direct": 1 - ids / direct,
        "share_forebay": 1 - ids / forebay,
        "channels": sorted({reading.channel for reading in flat["forebay"]}),
        "stages_ms": _stages_ms(flat["forebay"]),
    }


def _ttft_ms(readings: list[Reading]) -> float:
    return median(reading.ttft for reading in readings) * 1e3


def _stages_ms(readings: list[Reading]) -> dict[str, float]:
    """The median of each stage that Forebay tells of."""
    found: dict[str, list[float]] = {}
    for reading in readings:
        for name, seconds in reading.stages:
            found.setdefault(name, []).append(seconds * 1e3)
    return {name: median(values) for name, values in found.items()}


def summarise(detail: Detail) -> dict[str, float]:
    """The flat figures, each with the name of its cell."""
    keys = ("ratio", "ttft_direct_ms", "ttft_forebay_ms", "ttft_ids_ms", "share_direct",
            "share_forebay")  # fmt: skip
    return {f"{key}_{name}": figures[key] for name, figures in detail.items() for key in keys}


def table(detail: Detail) -> Table:
    """One row a cell, for people."""
    shown = Table(
        "cell", "direct ms", "forebay ms", "ratio", "quartiles", "direct, ids ms", "share",
        "sent as", title="TTFT, through Forebay over direct",
    )  # fmt: skip
    for name, figures in detail.items():
        low, _, high = figures["ratio_quartiles"]
        shown.add_row(
            name,
            f"{figures['ttft_direct_ms']:.1f}",
            f"{figures['ttft_forebay_ms']:.1f}",
            f"{figures['ratio']:.2f}",
            f"{low:.2f}–{high:.2f}",
            f"{figures['ttft_ids_ms']:.1f}",
            f"{figures['share_direct']:.2f}",
            " ".join(figures["channels"]),
        )
    return shown
