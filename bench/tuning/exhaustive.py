"""The optimum by brute force: every candidate with all its windows. For simulated engines only."""

from dataclasses import dataclass

from bench.tuning.objective import Objective
from bench.tuning.simulated import Simulated
from bench.tuning.space import Flags, Space


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """`scores` are of the candidates that no constraint rules out, `evaluations` of all."""

    scores: dict[Flags, float]
    evaluations: int

    @property
    def best(self) -> Flags | None:
        """None: every candidate is ruled out."""
        return min(self.scores, key=lambda flags: self.scores[flags], default=None)


def exhaust(simulated: Simulated, space: Space, objective: Objective, windows: int) -> Exhaustive:
    scores = {}
    for flags in space.candidates:
        measured = [simulated.measure(flags, number) for number in range(windows)]
        if not objective.violations(measured):
            scores[flags] = objective.score(measured)
    return Exhaustive(scores, len(space.candidates))
