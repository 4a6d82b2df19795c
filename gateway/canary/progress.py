"""How far a canary has come: the state machine. Pure; time is Unix time, because a restart and
several gateways must agree on it.

    RUNNING ──step, when time and samples suffice and nothing is worse──► … ──► PROMOTED
       │  └──order pause──► PAUSED ──order run──► RUNNING
       └──shown to be worse──► ROLLED_BACK        order abort ──► ABORTED, promote ──► PROMOTED
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from gateway.canary.config import CanaryConfig, Order
from gateway.canary.sketch import Group
from gateway.canary.verdict import Looks, unproven, worse


class Phase(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"


OVER = frozenset((Phase.PROMOTED, Phase.ROLLED_BACK, Phase.ABORTED))


@dataclass(frozen=True, slots=True)
class Progress:
    """`run` names the attempt: an operator who changes it begins anew. `since` is when this step,
    or the end, began. Times are Unix times."""

    run: str
    phase: Phase
    step: int
    started: float
    since: float
    reason: str = ""
    looks: Looks = field(default_factory=Looks)

    def share(self, spec: CanaryConfig) -> float:
        """The new group's part of the sessions."""
        if self.phase is Phase.PROMOTED:
            return 1.0
        if self.phase in OVER:
            return 0.0
        return spec.steps[min(self.step, len(spec.steps) - 1)]


def begin(spec: CanaryConfig, now: float) -> Progress:
    return Progress(spec.run, Phase.RUNNING, 0, now, now, "started")


def advance(
    progress: Progress | None, spec: CanaryConfig, groups: tuple[Group, Group], now: float
) -> Progress:
    """The next state, given what was seen of the old and the new group at this step."""
    if progress is None or progress.run != spec.run:
        progress = begin(spec, now)
    ordered = _obey(progress, spec.order, now)
    if ordered.phase is not Phase.RUNNING:
        return ordered
    return _judge(ordered, spec, groups, now)


def _obey(progress: Progress, order: Order, now: float) -> Progress:
    match order:
        case Order.ABORT if progress.phase is not Phase.ABORTED:
            return replace(progress, phase=Phase.ABORTED, since=now, reason="ordered")
        case Order.PROMOTE if progress.phase is not Phase.PROMOTED:
            return replace(progress, phase=Phase.PROMOTED, since=now, reason="ordered")
        case Order.PAUSE if progress.phase is Phase.RUNNING:
            return replace(progress, phase=Phase.PAUSED, reason="ordered")
        case Order.RUN if progress.phase is Phase.PAUSED:
            # What was seen before the pause still counts, but the step's time begins again.
            return replace(progress, phase=Phase.RUNNING, since=now, reason="goes on")
    return progress


def _judge(
    progress: Progress, spec: CanaryConfig, groups: tuple[Group, Group], now: float
) -> Progress:
    old, new = groups
    waiting = waits_for(progress, spec, groups, now)
    if progress.looks.due(new.ended) or (not waiting and progress.looks.ended < new.ended):
        why = worse(old, new, spec, progress.looks)
        if why is not None:
            return replace(progress, phase=Phase.ROLLED_BACK, since=now, reason=why)
        progress = replace(progress, looks=progress.looks.taken(new.ended))
    if waiting:
        return progress
    if progress.step + 1 >= len(spec.steps):
        reason = f"not worse in {new.ended} requests at the last step"
        return replace(progress, phase=Phase.PROMOTED, since=now, reason=reason)
    reason = f"not worse in {new.ended} requests at {progress.share(spec):.0%}"
    return replace(progress, step=progress.step + 1, since=now, reason=reason, looks=Looks())


def waits_for(
    progress: Progress, spec: CanaryConfig, groups: tuple[Group, Group], now: float
) -> str:
    """What is missing for the next step; "" when nothing is."""
    new = groups[1]
    if (left := progress.since + spec.step_time - now) > 0:
        return f"{left:.0f} s more at this step"
    if new.ended < spec.samples:
        return f"{spec.samples - new.ended} more requests at the new group"
    last = progress.step + 2 >= len(spec.steps)
    if last and (left := progress.started + spec.side_by_side - now) > 0:
        return f"{left:.0f} s more side by side"
    return unproven(*groups, spec) if progress.share(spec) < 1.0 else ""
