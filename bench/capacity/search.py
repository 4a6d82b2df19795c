"""The fewest engines that hold, in few trials. Pure: what a trial is, the caller knows.

Doubling finds a number that holds and halving the edge below it, which is right when more engines
never do worse. In a simulation that need not be so near the edge: another engine sends every
request elsewhere. So the neighbours on both sides are tried as well, and where they contradict the
edge every number around is, until `NEIGHBOURS` in a row agree on either side. The answer is the
number from which on all that were tried hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

NEIGHBOURS = 2
FAR = 64
"""So many times the guess is not worth trying."""


class NeverHolds(ValueError):
    """No number of engines up to FAR times the guess holds."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer, every number that was tried with what it gave, and whether these were as
    doubling and halving take them to be: none that holds below one that does not."""

    engines: int
    tried: dict[int, bool] = field(default_factory=dict)

    @property
    def monotone(self) -> bool:
        holding = [number for number, held in self.tried.items() if held]
        return all(held or number < min(holding) for number, held in self.tried.items())


def least(holds: Callable[[int], bool], guess: int) -> Found:
    """Start at `guess`. Raises NeverHolds."""
    tried: dict[int, bool] = {}

    def trial(number: int) -> bool:
        if number not in tried:
            tried[number] = holds(number)
        return tried[number]

    fails, enough = _around(trial, max(1, guess))
    while enough - fails > 1:
        middle = (fails + enough) // 2
        if trial(middle):
            enough = middle
        else:
            fails = middle
    return Found(_settled(trial, enough), tried)


def _around(trial: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """A number that fails (0 needs no trial) and a larger one that holds."""
    if trial(guess):
        enough, fails = guess, guess // 2
        while fails and trial(fails):
            enough, fails = fails, fails // 2
        return fails, enough
    fails = guess
    while not trial(2 * fails):
        fails *= 2
        if fails >= FAR * guess:
            raise NeverHolds(f"not even {fails} engines hold it")
    return fails, 2 * fails


def _settled(trial: Callable[[int], bool], edge: int) -> int:
    """Above the highest failure that is not followed by NEIGHBOURS that fail no more; below that,
    anything that holds is luck."""
    answer, agreeing = edge, 0
    for number in count(edge + 1):
        agreeing = agreeing + 1 if trial(number) else 0
        answer = answer if agreeing else number + 1
        if agreeing == NEIGHBOURS:
            break
    below, failing = answer - 1, 0
    while below > 0 and failing < NEIGHBOURS:
        failing = 0 if trial(below) else failing + 1
        below -= 1
    return answer
