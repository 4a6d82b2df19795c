"""How much of its GPU's memory an engine should take: the source's rule on the last TTFTs. Pure.

Source (adjust_memory_utilization): the mean of the last ten TTFTs above the high mark: 0.05 less,
not under 0.70; below the low mark: 0.03 more, not over 0.90. A TTFT counts as a share of its
class's target, so that one rule serves engines of short and of long prompts. A running vLLM
cannot change its share: what comes out of here is for its next start (`rollout`).
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.canary.sketch import Group

LAST = 10
DOWN, UP = 0.05, 0.03
LEAST, MOST = 0.70, 0.90
FLAG = "gpu-memory-utilization"


@dataclass(frozen=True, slots=True)
class Heard:
    """How one request began. `ttft` None: the backend failed it."""

    backend: str
    service_class: str
    ttft: float | None


@dataclass(frozen=True, slots=True)
class Marks:
    """Mean TTFTs, as shares of the target, above and below which the rule moves."""

    high: float
    low: float


@dataclass(frozen=True, slots=True)
class Advice:
    """`wanted` is `present` where there is nothing to change; `why` is for a person."""

    backend: str
    present: float
    wanted: float
    why: str

    @property
    def changes(self) -> bool:
        return self.wanted != self.present


def advise(backend: str, present: float, ratios: Sequence[float], marks: Marks) -> Advice:
    """What the rule says about an engine, by its last TTFTs over their targets."""
    last = ratios[-LAST:]
    if len(last) < LAST:
        return Advice(backend, present, present, f"{len(last)} of {LAST} TTFTs so far")
    mean = sum(last) / LAST
    seen = f"the last {LAST} TTFTs are {mean:.2f} of their target on average"
    if mean > marks.high and present > LEAST:
        wanted = round(max(LEAST, present - DOWN), 2)
        return Advice(backend, present, wanted, f"{seen}, over {marks.high:g}")
    if mean < marks.low and present < MOST:
        wanted = round(min(MOST, present + UP), 2)
        return Advice(backend, present, wanted, f"{seen}, under {marks.low:g}")
    return Advice(backend, present, present, seen)


class History:
    """The last TTFTs of each backend since it began to take traffic."""

    def __init__(self) -> None:
        self._of: dict[str, deque[tuple[Heard, float]]] = {}

    def add(self, heard: Heard, ratio: float, kept: int) -> None:
        known = self._of.get(heard.backend)
        if known is None or known.maxlen != kept:
            known = self._of[heard.backend] = deque(known or (), maxlen=kept)
        known.append((heard, ratio))

    def forget(self, backend: str) -> None:
        """It starts anew: what it was like before says nothing."""
        self._of.pop(backend, None)

    def keep(self, backends: Collection[str]) -> None:
        """Forget those that are gone."""
        for gone in self._of.keys() - set(backends):
            del self._of[gone]

    def ratios(self, backend: str) -> list[float]:
        return [ratio for _, ratio in self._of.get(backend, ())]

    def group(self, backend: str) -> Group:
        """The same TTFTs as counts that can be compared."""
        group = Group()
        for heard, _ in self._of.get(backend, ()):
            group.answered(heard.service_class, heard.ttft)
        return group
