"""Whether the new group is worse than the old one: a question that few samples do not answer.

TTFT: of a class's TTFTs at the new group, one in a hundred may be above the old group's p99 (its
upper confidence bound, and the margin on top). If more are than chance explains, it is worse. The
test needs no assumption about how TTFTs are distributed, and counts instead of comparing two
estimates of a p99 that neither group may have the samples for. The same is asked of the median and
of p90: of a group that is slower all over, they tell with a few dozen samples.
Errors: likewise, against the old group's rate (its upper confidence bound, plus the margin).

Not to be shown worse is not enough to go on: the counts must also be such that a group with
several times as many long TTFTs as it may have would rarely show them (`unproven`).

Looking again and again makes chance look like a cause sooner or later: the n-th look may err with
a chance of alpha / (n (n + 1)), which adds up to alpha, and a look is taken only when the samples
have grown by a quarter.
"""

from collections import Counter
from dataclasses import dataclass

from gateway.canary.binomial import rank_above, tail, upper
from gateway.canary.config import CanaryConfig
from gateway.canary.sketch import Group, above, ranked

QUANTILES = {0.5: 0.65, 0.9: 0.2, 0.99: 0.05}
"""What is compared; and the share above it, with the margin, that a good group would not have."""
FIRST = 30
"""Ended requests of the new group before the first look: earlier ones would only cost chances."""
GROWTH = 1.25
DOUBT = 0.05


ENOUGH = 100
"""Ended requests of the old group at a step that speak for its error rate."""


def reference(step: Group, run: Group) -> Group:
    """What the new group is compared with: what the old one did at this step, at the same time
    and under the same load. Only an error rate may be older: at the last step there is no other."""
    found = step if step.ended >= ENOUGH else run
    return Group(found.answers, found.errors, step.ttft)


@dataclass(frozen=True, slots=True)
class Looks:
    """How often a step was looked at, and with how many ended requests of the new group."""

    count: int = 0
    ended: int = 0

    def due(self, ended: int) -> bool:
        return ended >= max(FIRST, self.ended * GROWTH)

    def taken(self, ended: int) -> "Looks":
        return Looks(self.count + 1, ended)


def worse(old: Group, new: Group, spec: CanaryConfig, looks: Looks) -> str | None:
    """Why the new group is worse, or None when that is not shown."""
    classes = sorted(set(old.ttft) & set(new.ttft))
    number = looks.count + 1
    tests = len(classes) * len(QUANTILES) + 1
    chance = spec.alpha / (number * (number + 1)) / tests
    why = _more_errors(old, new, spec.error_margin, chance)
    for service_class in classes:
        why = why or _slower(service_class, (old, new), spec.ttft_margin, chance)
    return why


def unproven(old: Group, new: Group, spec: CanaryConfig) -> str:
    """What speaks against going on although nothing is shown to be worse; "" for nothing.

    For steps at which both groups have traffic: TTFTs of different times compare the times.
    """
    for quantile, tolerated in QUANTILES.items():
        over, count = 0, 0
        for service_class in sorted(set(old.ttft) & set(new.ttft)):
            limit = _limit(old.ttft[service_class], quantile, spec.ttft_margin, DOUBT)
            if limit is not None:
                over += above(new.ttft[service_class], limit)
                count += new.ttft[service_class].total()
        if not count:
            return f"too few TTFTs at the old group to compare its p{quantile * 100:g} with"
        if 1.0 - tail(count, tolerated, over + 1) > DOUBT:
            return f"{over} of {count} TTFTs at new above p{quantile * 100:g}: too many, or too few"
    return ""


def _limit(old: Counter[int], quantile: float, margin: float, chance: float) -> float | None:
    """What the quantile may be; None when the old TTFTs are too few to tell."""
    rank = rank_above(old.total(), quantile, chance)
    return None if rank is None else ranked(old, rank) * (1.0 + margin)


def _more_errors(old: Group, new: Group, margin: float, chance: float) -> str | None:
    if not new.errors or not old.ended:
        return None
    # Half of the chance to err for the old group's bound, half for the new group's count.
    allowed = min(1.0, upper(old.ended, old.errors, chance / 2) + margin)
    if tail(new.ended, allowed, new.errors) >= chance / 2:
        return None
    return (
        f"errors: new {new.errors} of {new.ended}, old {old.errors} of {old.ended}: more than "
        f"{allowed:.2%}"
    )


def _slower(
    service_class: str, groups: tuple[Group, Group], margin: float, chance: float
) -> str | None:
    old, new = (group.ttft[service_class] for group in groups)
    for quantile in sorted(QUANTILES, reverse=True):
        limit = _limit(old, quantile, margin, chance / 2)
        if limit is None:
            continue
        over, count, may = above(new, limit), new.total(), 1.0 - quantile
        if tail(count, may, over) < chance / 2:
            return (
                f"TTFT of {service_class}: {over} of {count} at new above {limit:.3f} s, where "
                f"{may:.0%} may be (the old group's p{quantile * 100:g} and the margin)"
            )
    return None
