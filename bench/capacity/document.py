"""The answer as a document: a flat `summary`, and in `detail` steps, curve and reasons."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bench.capacity import plan, reasons
from bench.capacity.objective import Objective
from bench.capacity.search import Found


def answer(ladder: plan.Ladder, objective: Objective, *, brute_force: bool) -> dict[str, Any]:
    """The document: `summary`, and in `detail` the steps, the curve and the reasons."""
    asked = ladder.asked or ladder.random
    said = reasons.rule(asked)
    with ProcessPoolExecutor() as pool:
        found = plan.climb(ladder, objective, pool)
        engines = list(found.values())[-1].engines
        counts = plan.around(engines, engines, said.engines)
        if brute_force:
            counts = list(range(1, max(counts) + 1))
        points = plan.curve(asked, objective, counts, pool)
    steps = {name: one.engines for name, one in found.items()}
    (best,) = (point for point in points if point["engines"] == engines)
    summary = {
        "qps": asked.rate,
        "engines": engines,
        "engines_rule": said.engines,
        "ttft_alone_mean_ms": round(said.ttft * 1e3, 2),
        "ttft_mean_ms": best["mean"],
        "ttft_p99_ms": best["p99"],
        "good_share": best["good_share"],
        "runs": plan.runs(found),
        "runs_last_step": len(list(found.values())[-1].tried),
        "monotone": float(all(one.monotone for one in found.values())),
    }
    if (at_target := reasons.at_target(asked, objective)) is not None:
        summary["engines_rule_at_target"] = at_target
    if brute_force:
        summary |= {
            "engines_brute_force": plan.brute_force(points),
            "runs_brute_force": len(points),
        }
    detail = {
        "objective": str(objective),
        "steps": {name: _step(one) for name, one in found.items()},
        "curve": points,
        "reasons": reasons.words(steps, said, asked),
    }
    return {"schema": 1, "summary": summary, "detail": detail}


def _step(found: Found) -> dict[str, Any]:
    tried = {str(number): held for number, held in sorted(found.tried.items())}
    return {"engines": found.engines, "tried": tried, "monotone": found.monotone}
