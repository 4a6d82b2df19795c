"""One engine at a time tries another share of its memory, and goes back if TTFT gets worse. Pure.

    idle ─► restarting ─► watched ─► idle            it stays
                 │            └────► returning ─► idle    worse than before: back
                 └─ not back ──────► returning

Begins in maintenance windows only; going back waits for none. What is worse is decided as for a
canary (`canary.verdict`): by counts, so that ten unlucky requests are not a regression. The engine
is compared with itself before the restart: a much busier hour looks like a regression too, and then
costs a restart and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from gateway.canary.config import CanaryConfig
from gateway.canary.sketch import Group
from gateway.canary.verdict import FIRST, Looks, worse
from gateway.tuning.config import UtilizationConfig
from gateway.tuning.memory import Advice, Heard


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the engine again with this share; tell `restarted` or `not_back` how that ended."""

    backend: str
    before: float
    value: float
    why: str


class End(Enum):
    """How a trial ended."""

    KEPT = "kept"
    ROLLED_BACK = "rolled_back"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True)
class Ended:
    """The trial is over, and this share in force. Overtaken: somebody else restarted the engine."""

    backend: str
    value: float
    how: End
    why: str


Command = Restart | Ended


class Phase(Enum):
    RESTARTING = "restarting"
    WATCHED = "watched"
    RETURNING = "returning"


@dataclass(slots=True)
class Trial:
    """What is tried, and what was seen before and since."""

    advice: Advice
    before: Group
    after: Group = field(default_factory=Group)
    phase: Phase = Phase.RESTARTING
    since: float = 0.0
    looks: Looks = field(default_factory=Looks)
    why: str = ""


class Rollout:
    """At most one `trial` at a time."""

    def __init__(self) -> None:
        self.trial: Trial | None = None
        self._rests: dict[str, float] = {}
        self._refused: dict[str, set[float]] = {}

    def begin(
        self, advice: Advice, before: Group, spec: UtilizationConfig, now: float
    ) -> Restart | None:
        """Try a candidate, unless too little is known of what its engine did `before`."""
        if before.answers < FIRST:
            return None
        self.trial = Trial(advice, before)
        self._rests[advice.backend] = now + spec.rest
        return Restart(advice.backend, advice.present, advice.wanted, advice.why)

    def candidate(self, advices: Sequence[Advice], now: float) -> Advice | None:
        """What may be tried now: the first advice whose engine has rested, and whose share was not
        found worse before."""
        for advice in advices if self.trial is None else ():
            refused = advice.wanted in self._refused.get(advice.backend, ())
            if advice.changes and not refused and self._rests.get(advice.backend, now) <= now:
                return advice
        return None

    def heard(self, heard: Heard) -> None:
        """How a request began, or that it failed."""
        trial = self.trial
        if trial is None or trial.phase is not Phase.WATCHED:
            return
        if heard.backend == trial.advice.backend:
            if heard.ttft is None:
                trial.after.failed()
            else:
                trial.after.answered(heard.service_class, heard.ttft)

    def restarted(self, now: float) -> Ended | None:
        """The engine takes traffic again, as the last Restart wanted it."""
        trial = self._running()
        if trial.phase is Phase.RETURNING:
            return self._end(trial.advice.present, End.ROLLED_BACK, trial.why)
        trial.phase, trial.since = Phase.WATCHED, now
        return None

    def not_back(self, why: str) -> Command:
        """The engine did not come back: with its old share it will, or nothing of ours helps."""
        trial = self._running()
        if trial.phase is Phase.RETURNING:
            return self._end(trial.advice.present, End.ROLLED_BACK, f"{trial.why}; then {why}")
        return self._refuse(why)

    def judge(self, present: float | None, spec: UtilizationConfig, now: float) -> Command | None:
        """What follows from what was seen since the restart. `present` is the engine's share."""
        trial = self.trial
        if trial is None or trial.phase is not Phase.WATCHED:
            return None
        advice = trial.advice
        if present != advice.wanted:
            value = advice.present if present is None else present
            return self._end(value, End.OVERTAKEN, "somebody else has restarted the engine")
        if trial.looks.due(trial.after.ended):
            why = worse(trial.before, trial.after, _as_canary(spec), trial.looks)
            trial.looks = trial.looks.taken(trial.after.ended)
            if why is not None:
                return self._refuse(why)
        if trial.after.answers >= spec.samples:
            return self._end(advice.wanted, End.KEPT, f"{spec.samples} TTFTs are not worse")
        if now - trial.since >= spec.watch:
            seen = f"{trial.after.answers} TTFTs in {spec.watch:g} s"
            if trial.looks.count:
                return self._end(advice.wanted, End.KEPT, f"{seen} are not worse")
            # Nothing stays that nobody has measured.
            return self._return(f"{seen}: too few to tell")
        return None

    def _refuse(self, why: str) -> Restart:
        advice = self._running().advice
        self._refused.setdefault(advice.backend, set()).add(advice.wanted)
        return self._return(why)

    def _return(self, why: str) -> Restart:
        trial = self._running()
        trial.phase, trial.why = Phase.RETURNING, why
        advice = trial.advice
        return Restart(advice.backend, advice.wanted, advice.present, why)

    def _end(self, value: float, how: End, why: str) -> Ended:
        backend, self.trial = self._running().advice.backend, None
        return Ended(backend, value, how, why)

    def _running(self) -> Trial:
        assert self.trial is not None, "only what a Restart began can be told of"
        return self.trial


def _as_canary(spec: UtilizationConfig) -> CanaryConfig:
    """The comparison's margins; the groups are this engine before and after."""
    return CanaryConfig(old=("before",), new=("after",), ttft_margin=spec.margin)
