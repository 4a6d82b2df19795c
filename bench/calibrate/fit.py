"""From latencies to an engine's costs: least squares with no cost under 0. Pure.

What a lone prompt of `p` tokens waits for its first token, and what each further token takes while
`n` answers are decoded together, are linear in the costs of bench.engine.EngineSpec:

    ttft = overhead + steps(p) * step_base + p * prefill_per_token + p * p / 2 * attention
    gap  = step_base + n * decode_per_seq + n * context * attention

`overhead` is what stands before the engine: HTTP, template, tokenizer, the client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from typing import Any

import numpy

from bench.engine import EngineSpec

COSTS = ("overhead", "step_base", "prefill_per_token", "attention", "decode_per_seq")


@dataclass(frozen=True, slots=True)
class Prefill:
    """A lone request: its prompt in tokens, its TTFT in seconds."""

    tokens: int
    ttft: float


@dataclass(frozen=True, slots=True)
class Decode:
    """`running` answers decoded together at a mean context in tokens: seconds between tokens."""

    running: int
    context: float
    gap: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The engine, the seconds before it, and the mean relative error over what was fitted."""

    spec: EngineSpec
    overhead: float
    error: float


def fit(prefills: Sequence[Prefill], decodes: Sequence[Decode], limits: EngineSpec) -> Fitted:
    """`limits` gives the step's budget, which the server was started with, and all but the costs.

    Relative errors count, so a short prompt weighs as much as a long one. Raises ValueError when
    there is too little to fit.
    """
    if len({prefill.tokens for prefill in prefills}) < 3 or not decodes:
        raise ValueError("too few different requests to fit the costs")
    rows = [_prefill_row(prefill, limits) for prefill in prefills]
    rows += [[0.0, 1.0, 0.0, d.running * d.context, float(d.running)] for d in decodes]
    return solve(rows, [p.ttft for p in prefills] + [d.gap for d in decodes], limits)


def solve(rows: Sequence[Sequence[float]], measured: Sequence[float], limits: EngineSpec) -> Fitted:
    """The costs that explain what was measured; a row has how often each of COSTS was paid."""
    matrix = numpy.array(rows) / numpy.array(measured)[:, None]
    costs = _least_squares(matrix)
    found: dict[str, Any] = dict(zip(COSTS, costs, strict=True))
    error = float(numpy.abs(matrix @ numpy.array(costs) - 1.0).mean())
    overhead = found.pop("overhead")
    return Fitted(replace(limits, **found), overhead, error)


def _prefill_row(prefill: Prefill, limits: EngineSpec) -> list[float]:
    tokens = float(prefill.tokens)
    steps = ceil(prefill.tokens / limits.max_num_batched_tokens)
    return [1.0, float(steps), tokens, tokens * tokens / 2, 0.0]


def _least_squares(matrix: Any) -> list[float]:
    """The costs, none negative, that bring `matrix @ costs` nearest to ones.

    With five unknowns each choice of which ones are 0 can be tried.
    """
    wanted = numpy.ones(len(matrix))
    best, least = [0.0] * len(COSTS), float("inf")
    for count in range(1, len(COSTS) + 1):
        for chosen in combinations(range(len(COSTS)), count):
            part, *_ = numpy.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)
            rest = float(numpy.square(matrix[:, chosen] @ part - wanted).sum())
            if part.min() >= 0 and rest < least:
                costs = [0.0] * len(COSTS)
                for index, cost in zip(chosen, part, strict=True):
                    costs[index] = float(cost)
                best, least = costs, rest
    return best


def flags(fitted: Fitted) -> str:
    """The fitted engine as options of `python -m bench.fake_vllm`."""
    spec = fitted.spec
    return (
        f"--step-ms {spec.step_base * 1e3:.4g} --prefill-us {spec.prefill_per_token * 1e6:.4g} "
        f"--decode-us {spec.decode_per_seq * 1e6:.4g} --attention-ns {spec.attention * 1e9:.4g} "
        f"--max-num-batched-tokens {spec.max_num_batched_tokens}"
    )
