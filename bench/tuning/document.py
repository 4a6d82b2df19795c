"""The result as JSON. Its schema: bench/data/schemas/tune.json; what it means: docs/tuning.md."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.environment import environment
from bench.tuning.book import Entry
from bench.tuning.compare import Comparison
from bench.tuning.evidence import curves, reasons, verdict
from bench.tuning.exhaustive import Exhaustive
from bench.tuning.objective import Aim, Window, figures
from bench.tuning.search import NothingAllowed, Search

SCHEMA = 1


def document(
    search: Search,
    task: Mapping[str, Any],
    comparison: Comparison | None,
    exhaustive: Exhaustive | None,
) -> dict[str, Any]:
    """All of it, also of a search that ruled out every candidate: then the chosen one is
    `Search.nearest`, and nothing is improved. Raises NothingAllowed when there is no candidate."""
    entries, objective = search.book.entries, search.objective
    chosen, allowed = chosen_of(search)
    summary: dict[str, Any] = {
        "objective": "ttft_p99_ms" if search.aim is Aim.TTFT else "goodput_per_s",
        "best": _shown(search, chosen.windows),
        "best_flags": chosen.flags.values(),
        "defaults": _shown(search, search.book.defaults),
        "evaluations": round(search.evaluations, 3),
        "candidates": len(search.book.space.candidates),
        "measured": len(entries),
        "cut_short": sum(entry.cut_short for entry in entries.values()),
    }
    if not allowed:
        summary["improved"] = False
    if comparison is not None:
        summary |= _compared(search, comparison)
    if exhaustive is not None:
        summary |= _exhausted(search, chosen, exhaustive)
    return {
        "schema": SCHEMA,
        "summary": summary,
        "detail": {
            "floor_per_s": round(objective.floor, 4),
            "reasons": reasons(chosen, search.book, objective),
            "curves": curves(search.book, objective),
            "candidates": [_row(search, entry) for entry in entries.values()],
            "defaults": asdict(figures(search.book.defaults)),
            "comparison": None if comparison is None else _rounds(comparison),
        },
        "run": dict(task),
        "environment": environment(),
    }


def chosen_of(search: Search) -> tuple[Entry, bool]:
    """What is shown as chosen, and whether it is allowed."""
    try:
        return search.best(), True
    except NothingAllowed:
        return search.nearest(), False


def _shown(search: Search, windows: tuple[Window, ...]) -> float:
    return round(abs(search.objective.score(windows)), 3)


def _compared(search: Search, comparison: Comparison) -> dict[str, Any]:
    spent = len(comparison.defaults) + len(comparison.chosen)
    return {
        "improved": comparison.better,
        "ratio": round(comparison.ratio, 4),
        "ratio_low": round(comparison.low, 4),
        "ratio_high": round(comparison.high, 4) if comparison.high < float("inf") else None,
        "compared_evaluations": round(spent / search.budget.windows, 3),
    }


def _exhausted(search: Search, chosen: Entry, exhaustive: Exhaustive) -> dict[str, Any]:
    """Both counted alike: the found one by its score on the same windows as all others. What
    there is not, because every candidate is ruled out, is left out."""
    told: dict[str, Any] = {
        "exhaustive_evaluations": exhaustive.evaluations,
        "evaluations_share": round(search.evaluations / exhaustive.evaluations, 4),
    }
    if exhaustive.best is None:
        return told
    optimum = exhaustive.scores[exhaustive.best]
    told |= {
        "exhaustive": round(abs(optimum), 3),
        "exhaustive_flags": exhaustive.best.values(),
    }
    if chosen.flags in exhaustive.scores:
        found = exhaustive.scores[chosen.flags]
        told["regret"] = round(search.objective.worse_by(found, optimum), 4)
    return told


def _row(search: Search, entry: Entry) -> dict[str, Any]:
    return {
        "flags": entry.flags.values(),
        "phase": entry.phase,
        "windows": len(entry.windows),
        "cut_short": entry.cut_short,
        "ruled_out_by": search.objective.violations(entry.windows),
        **asdict(figures(entry.windows)),
    }


def _rounds(comparison: Comparison) -> dict[str, Any]:
    return {
        "verdict": verdict(comparison),
        "defaults": [_round(window) for window in comparison.defaults],
        "chosen": [_round(window) for window in comparison.chosen],
    }


def _round(window: Window) -> dict[str, float]:
    found = figures([window])
    return {
        "ttft_p50_ms": round(found.ttft_p50 * 1e3, 3),
        "ttft_p99_ms": round(found.ttft_p99 * 1e3, 3),
        "throughput_per_s": round(found.throughput, 3),
        "goodput_per_s": round(found.goodput, 3),
        "failed": found.failed,
    }
