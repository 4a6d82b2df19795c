"""max_num_seqs, step by step: which rung is measured next, and when to stop. Pure.

From the rung that the rules give, upwards and then downwards. A direction ends with the second rung
in a row that is no better than the best before it, or with the first that a constraint rules out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.tuning.space import Flags

GAIN = 0.01
"""A rung that is better by less is no better."""
PATIENCE = 2


@dataclass(frozen=True, slots=True)
class Rung:
    """What came of one: its score (less is better), and whether it may be chosen."""

    score: float
    allowed: bool


def following(rungs: Sequence[Flags], start: Flags, told: Mapping[Flags, Rung]) -> Flags | None:
    """The rung to measure next; None when the ladder is done."""
    if start not in told:
        return start
    begin = list(rungs).index(start)
    for direction in (rungs[begin + 1 :], rungs[:begin][::-1]):
        found = _along(direction, told[start], told)
        if found is not None:
            return found
    return None


def _along(direction: Sequence[Flags], start: Rung, told: Mapping[Flags, Rung]) -> Flags | None:
    best = start.score if start.allowed else float("inf")
    in_vain = 0
    for flags in direction:
        if flags not in told:
            return flags
        rung = told[flags]
        if not rung.allowed:
            return None
        if rung.score < best - GAIN * abs(best):
            best, in_vain = rung.score, 0
        else:
            in_vain += 1
        if in_vain == PATIENCE:
            return None
    return None
