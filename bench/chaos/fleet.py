"""The engines of a chaos run: simulated ones, which do wrong what they are told, or real vLLMs.

A real one can only be killed and frozen. All are this run's own: none that it did not start.
"""

from dataclasses import dataclass, replace

from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Plan
from bench.chaos.mischief import KINDS, TO_ANY_PROCESS
from bench.demo import MODEL, free_port
from bench.idle.command import real as real_engine
from bench.stack import ENGINE, READY_WITHIN, engines

MANAGED = ManagedSettings(command=ENGINE, backoff_first=2.0, backoff_max=4.0, grace=2.0)
"""Slow restarts: an engine that was killed is away for seconds. A vLLM is so by itself."""
STEP_MS = 40
"""An answer takes about a second, so that most troubles meet answers that have begun."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """`kinds` of trouble are what its engines can meet."""

    plan: Plan
    managed: ManagedSettings
    model: str
    kinds: tuple[str, ...]
    ready_within: float

    @property
    def obeys(self) -> bool:
        """Its engines can be told to do wrong, and to stop that."""
        return self.kinds == KINDS


def simulated(count: int) -> Fleet:
    plan = engines(_names(count), step_ms=STEP_MS)
    return Fleet(plan, MANAGED, MODEL, KINDS, READY_WITHIN)


def real(count: int) -> Fleet:
    """vLLMs on the CPU with the tiny model. Raises BuildError."""
    one = real_engine((), 1)
    several = tuple(replace(one.engine, name=name, port=free_port()) for name in _names(count))
    managed = replace(MANAGED, command=one.managed.command)
    return Fleet(Plan(several), managed, one.model, TO_ANY_PROCESS, count * one.ready_within)


def _names(count: int) -> list[str]:
    return [f"engine-{number}" for number in range(count)]
