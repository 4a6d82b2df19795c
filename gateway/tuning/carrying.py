"""Does what the rollout says to the engines that are ours, and tells of it.

One loop; an engine that restarts holds it up, which is what "one at a time" means.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

from backends.managed.node import NotBack
from gateway.peak import within
from gateway.tuning.advisor import Advisor
from gateway.tuning.config import UtilizationConfig
from gateway.tuning.ear import Ear
from gateway.tuning.memory import FLAG
from gateway.tuning.rollout import Command, End, Restart, Rollout
from gateway.tuning.told import Tell, Told


class Engines(Protocol):
    """The engines that may be restarted here."""

    def values(self) -> Mapping[str, float]: ...

    async def restart(self, engine: str, value: float, why: str) -> None:
        """Raises NotBack."""


class Carrying:
    """`spec` is the settings in force."""

    def __init__(
        self,
        advisor: Advisor,
        engines: Engines,
        spec: Callable[[], UtilizationConfig],
        tell: Tell,
    ) -> None:
        self._advisor = advisor
        self._engines = engines
        self._spec = spec
        self._tell = tell
        self._rollout = Rollout()

    async def run(self, ear: Ear) -> None:
        """Follow the advice until cancelled."""
        ear.heard.append(self._rollout.heard)
        while True:
            await asyncio.sleep(self._spec().interval)
            await self.look(datetime.now(UTC))

    async def look(self, now: datetime) -> None:
        """Judge what is tried, or begin with what may be tried now."""
        await self._carry_out(self._judge() or self._begin(now))

    def _judge(self) -> Command | None:
        trial = self._rollout.trial
        if trial is None:
            return None
        present = self._engines.values().get(trial.advice.backend)
        return self._rollout.judge(present, self._spec(), monotonic())

    def _begin(self, now: datetime) -> Command | None:
        spec, moment = self._spec(), monotonic()
        if not spec.apply or not within(spec.windows, spec.timezone, now):
            return None
        ours = self._engines.values()
        advices = [
            advice
            for advice in self._advisor.advices()
            if advice.backend in ours and self._advisor.spared(advice.backend)
        ]
        candidate = self._rollout.candidate(advices, moment)
        if candidate is None:
            return None
        before = self._advisor.group(candidate.backend)
        return self._rollout.begin(candidate, before, spec, moment)

    async def _carry_out(self, command: Command | None) -> None:
        while command is not None:
            self._tell(_told(command))
            if not isinstance(command, Restart):
                return
            try:
                await self._engines.restart(command.backend, command.value, command.why)
            except NotBack as error:
                command = self._rollout.not_back(str(error))
            else:
                command = self._rollout.restarted(monotonic())


def _told(command: Command) -> Told:
    if isinstance(command, Restart):
        what = f"{FLAG} {command.before:g} → {command.value:g}: restarting"
        return Told("restart", command.backend, what, command.why)
    what = {
        End.KEPT: f"{FLAG} {command.value:g} stays: write it into the plan",
        End.ROLLED_BACK: f"{FLAG} {command.value:g} again",
        End.OVERTAKEN: f"{FLAG} is {command.value:g} now: the trial is over",
    }[command.how]
    return Told(command.how.value, command.backend, what, command.why)
