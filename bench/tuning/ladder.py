"""One flag after the other, step by step: which rung is measured next, and when to stop. Pure.

max_num_seqs first, from what the rules give; then each other flag, from the best so far. On each
ladder it goes upwards and then downwards. A direction ends with the second rung in a row that is no
better than the best before it, or with the first that a constraint rules out. Not here: what flags
do only together, which the optimiser looks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from bench.tuning.space import Flags, Space

GAIN = 0.01
"""A rung that is better by less is no better."""
PATIENCE = 2


@dataclass(frozen=True, slots=True)
class Rung:
    """What came of one: its score (less is better; infinite when it was hopeless), and whether the
    constraints allow it."""

    score: float
    allowed: bool


def upcoming(space: Space, told: Mapping[Flags, Rung]) -> Flags | None:
    """The candidate to measure next; None when no ladder leads on.

    After those from the rules come those from the best candidate of all, which may be another
    since the optimiser has looked: these end with the first rung in vain.
    """
    found = _ladders(space, space.start, told, PATIENCE)
    if found is None and told:
        best = min(told, key=lambda flags: _score(told[flags]))
        found = _ladders(space, best, told, 1)
    return found


def _ladders(space: Space, best: Flags, told: Mapping[Flags, Rung], patience: int) -> Flags | None:
    for axis in space.axes:
        rungs = space.rungs(best, axis)
        found = following(rungs, best, told, patience)
        if found is not None:
            return found
        known = (best, *(rung for rung in rungs if rung in told))
        best = min(known, key=lambda rung: _score(told[rung]))
    return None


def _score(rung: Rung) -> float:
    return rung.score if rung.allowed else inf


def following(
    rungs: Sequence[Flags], start: Flags, told: Mapping[Flags, Rung], patience: int = PATIENCE
) -> Flags | None:
    """The rung of one ladder to measure next; None when it is done."""
    if start not in told:
        return start
    begin = list(rungs).index(start)
    for direction in (rungs[begin + 1 :], rungs[:begin][::-1]):
        found = _along(direction, told[start], told, patience)
        if found is not None:
            return found
    return None


def _along(
    direction: Sequence[Flags], start: Rung, told: Mapping[Flags, Rung], patience: int
) -> Flags | None:
    best = _score(start)
    in_vain = 0
    for flags in direction:
        if flags not in told:
            return flags
        rung = told[flags]
        if not rung.allowed:
            return None
        if rung.score < (best - GAIN * abs(best) if best < inf else inf):
            best, in_vain = rung.score, 0
        else:
            in_vain += 1
        if in_vain == patience:
            return None
    return None
