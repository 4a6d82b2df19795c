"""What was found, as the document that `forebay recalibrate` and `forebay capacity` read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.costs import told
from bench.recalibrate.boundary import Choice
from bench.recalibrate.fit import Learned
from bench.recalibrate.fleet import Situation
from bench.recalibrate.log import Seen

FIELD = "max_prompt_tokens"


def document(
    parts: Sequence[Sequence[Seen]], learned: Learned, choice: Choice, situation: Situation
) -> dict[str, Any]:
    """`summary` has the costs in the units of bench.fake_vllm's flags; `detail.changes` what is
    proposed, as `forebay ctl set` takes it."""
    costs = told(learned.fitted.spec, learned.fitted.overhead)
    return {
        "schema": 1,
        "summary": {name: round(value, 4) for name, value in costs.items()}
        | {
            "requests": sum(map(len, parts)),
            "parts": len(parts),
            "fit_rows": learned.rows,
            "held_out_error": round(learned.error, 4),
            "bound_now": choice.now.bound,
            "bound": choice.best.bound,
            "stretch_p99_now": round(choice.now.stretch, 4),
            "stretch_p99": round(choice.best.stretch, 4),
        },
        "detail": {
            "backends": learned.backends,
            "tried": [asdict(one) for one in choice.tried],
            "changes": _changes(choice, situation),
        },
    }


def _changes(choice: Choice, situation: Situation) -> list[dict[str, Any]]:
    now, best = choice.now, choice.best
    if best.bound == now.bound:
        return []
    return [
        {
            "key": f"class:{situation.smallest.name}",
            "field": FIELD,
            "before": now.bound,
            "after": best.bound,
            "why": f"of the logged requests, played in virtual time, one in a hundred had a TTFT "
            f"over {now.stretch:.2f} times what it may expect; with this bound {best.stretch:.2f}",
        }
    ]


def told_changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """How the costs have moved since an earlier document, where they moved by a tenth or more."""
    said = []
    for name in ("overhead_ms", "step_ms", "prefill_us", "decode_us", "attention_ns"):
        then, now = before.get(name, 0.0), after[name]
        if then > 0 and abs(now / then - 1) >= 0.1:
            said.append(f"{name} {then:.4g} → {now:.4g} ({now / then - 1:+.0%})")
    return said
