"""The optimum by brute force: every candidate with all its windows. For simulated engines only."""

from concurrent.futures import ProcessPoolExecutor
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
    def best(self) -> Flags:
        return min(self.scores, key=lambda flags: self.scores[flags])


def exhaust(simulated: Simulated, space: Space, objective: Objective, windows: int) -> Exhaustive:
    """Raises ValueError when every candidate is ruled out."""
    candidates = space.candidates
    count = len(candidates)
    with ProcessPoolExecutor() as pool:
        found = pool.map(
            _score, [simulated] * count, candidates, [objective] * count, [windows] * count
        )
        scores = {
            flags: score
            for flags, score in zip(candidates, found, strict=True)
            if score is not None
        }
    if not scores:
        raise ValueError("every candidate is ruled out")
    return Exhaustive(scores, count)


def _score(simulated: Simulated, flags: Flags, objective: Objective, windows: int) -> float | None:
    measured = [simulated.measure(flags, number) for number in range(windows)]
    return None if objective.violations(measured) else objective.score(measured)
