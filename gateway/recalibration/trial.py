"""Whether the time after a change of a class's bound is worse than the time before it. Pure.

Who is called short is what the change changes, so no figure of a class can be compared. Prompts are
compared by size: those below both bounds, between them, and above both. The judgement is a canary's
(gateway/canary/verdict.py): what is shown, with few chances to err, in a median, a p90, a p99 or
the rate of errors.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.canary.config import CanaryConfig
from gateway.canary.sketch import Group
from gateway.canary.verdict import Looks, worse
from gateway.recalibration.proposal import Change
from gateway.report.analysis import FAILED
from gateway.report.lines import Line

ENOUGH = 200
"""Requests on either side without which nothing is shown; the source's number for a tuning step."""

RULES = CanaryConfig(old=("before",), new=("after",), samples=ENOUGH)
"""How much worse is worse, and with what chance to err: a canary's defaults."""


@dataclass(slots=True)
class Trial:
    """Fed with the log; `before` and `after` are the two times."""

    change: Change
    before: Group = field(default_factory=Group)
    after: Group = field(default_factory=Group)
    _looks: Looks = field(default_factory=Looks)

    def saw_before(self, lines: Iterable[Line]) -> None:
        self._add(self.before, lines)

    def saw_after(self, lines: Iterable[Line]) -> None:
        self._add(self.after, lines)

    def verdict(self, *, last: bool = False) -> str | None:
        """Why it is worse; None while that is not shown, or more must come before another look is
        worth its chance to err. The last look is taken in any case."""
        if not last and not self._looks.due(self.after.ended):
            return None
        why = worse(self.before, self.after, RULES, self._looks)
        self._looks = self._looks.taken(self.after.ended)
        return why

    def nothing_before(self) -> str | None:
        """Why there is nothing to compare with; None where there is."""
        return _too_few(self.before, "before")

    def nothing_after(self) -> str | None:
        """Why the time after the change shows nothing; None where it does."""
        return _too_few(self.after, "after")

    def _add(self, group: Group, lines: Iterable[Line]) -> None:
        for line in lines:
            if line.outcome in FAILED:
                group.failed()
            elif line.ttft is not None:
                group.answered(self._size(line.prompt_tokens), line.ttft)

    def _size(self, tokens: int) -> str:
        low, high = sorted((self.change.before, self.change.after))
        if tokens <= low:
            return f"prompts up to {low} tokens"
        return f"prompts of {low + 1} to {high}" if tokens <= high else f"prompts over {high}"


def _too_few(group: Group, when: str) -> str | None:
    if group.ended >= ENOUGH:
        return None
    return f"only {group.ended} requests {when} the change, {ENOUGH} are needed"
