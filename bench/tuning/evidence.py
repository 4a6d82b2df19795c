"""Why each chosen flag has its value, in measured numbers, and a plan that carries them. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from backends.plans.model import Engine, Flag, Plan
from bench.tuning.book import Book, Entry
from bench.tuning.compare import Comparison
from bench.tuning.objective import Aim, Objective, figures
from bench.tuning.space import NAMES, Flags


def with_flags(
    engine: Engine, flags: Flags | None, reasons: Mapping[str, str] | None = None
) -> Engine:
    """The engine with these flags in the place of its own ones of the same names; None: without.
    One that is as it was keeps its reason, where `reasons` has no better one."""
    before = {flag.name: flag for flag in engine.flags}
    kept = tuple(flag for flag in engine.flags if flag.name not in NAMES.values())
    told = reasons or {}
    values = {} if flags is None else flags.values()
    own = tuple(
        before[name]
        if name not in told and name in before and before[name].value == value
        else Flag(name, value, told.get(name, "as the search began, not searched"))
        for name, value in values.items()
    )
    return replace(engine, flags=(*own, *kept))


def curves(book: Book, objective: Objective) -> dict[str, list[dict[str, Any]]]:
    """For each flag and each of its values, in the order of the axis, the best that was measured
    with it, whatever the other flags were; `allowed` is false where the constraints ruled out
    everything with that value."""
    entries, found = book.entries, {}
    for axis, values in book.space.axes.items():
        if None in values:
            continue
        by_value: dict[Any, list[Entry]] = {value: [] for value in values}
        for flags, entry in entries.items():
            by_value[getattr(flags, axis)].append(entry)
        found[NAMES[axis]] = [
            {"value": value, **_best(measured, objective)}
            for value, measured in by_value.items()
            if measured
        ]
    return found


def _best(entries: list[Entry], objective: Objective) -> dict[str, Any]:
    allowed = [entry for entry in entries if not objective.violations(entry.windows)]
    best = min(allowed or entries, key=lambda entry: objective.score(entry.windows))
    return {
        "score": objective.score(best.windows),
        "measured": len(entries),
        "allowed": bool(allowed),
        "kv_usage": figures(best.windows).kv_usage,
    }


def reasons(chosen: Entry, book: Book, objective: Objective) -> dict[str, str]:
    """For each flag that was searched a line: what its value gave, and what the values beside it
    did; and what rules the candidate out, if it is not allowed."""
    told = {}
    searched = {NAMES[axis] for axis, values in book.space.axes.items() if len(values) > 1}
    excess = objective.violations(chosen.windows)
    unit = "TTFT p99 {:.0f} ms" if objective.aim is Aim.TTFT else "goodput {:.2f}/s"
    for name, points in curves(book, objective).items():
        if name not in searched:
            continue
        value = chosen.flags.values().get(name)
        line = f"measured {_said(unit, objective.score(chosen.windows))}"
        line += f" but ruled out by {', '.join(excess)}" if excess else ""
        places = [point["value"] for point in points]
        if value in places:
            at = places.index(value)
            beside = points[max(0, at - 1) : at] + points[at + 1 : at + 2]
            line += "".join(
                f"; best with {p['value']}: {_said(unit, p['score'])}"
                f"{'' if p['allowed'] else ' but ruled out'}"
                for p in beside
            )
        told[name] = line
    return told


def plan_of(plan: Plan, name: str, flags: Flags, told: Mapping[str, str]) -> Plan:
    """The plan with the engine of this name as it was chosen."""
    engines = tuple(
        with_flags(engine, flags, told) if engine.name == name else engine
        for engine in plan.engines
    )
    return replace(plan, engines=engines)


def verdict(comparison: Comparison) -> str:
    """In a sentence, for people."""
    what = "TTFT p99" if comparison.aim is Aim.TTFT else "goodput"
    interval = f"{comparison.ratio:.2f} ({comparison.low:.2f} to {comparison.high:.2f})"
    numbers = f"{what} over the defaults', {len(comparison.chosen)} rounds: {interval}"
    if comparison.better:
        return f"better than the engine's defaults; {numbers}"
    return f"cannot improve on the engine's defaults: within noise, or worse; {numbers}"


def _said(unit: str, score: float) -> str:
    return unit.format(abs(score))
