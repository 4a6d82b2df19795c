"""The fleet that bounds are tried on: the gateway's classes and backends, with the fitted engine.

A gateway tells its classes and configured backends; of one that discovery found, the log tells
which classes it served.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from bench.engine import EngineSpec
from bench.policies import UNBOUNDED
from bench.recalibrate.log import Seen
from bench.simulation import Outcome, Simulation, ready
from bench.workload import Job
from scheduler.model import Backend, BurstSpec, ClassSpec, Settings

LIMIT = 64
"""Requests at a time of a backend that no setting speaks of: the gateway's default."""


class NoSituation(ValueError):
    """The file does not say what a gateway's settings are."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The settings in force, as far as they matter here. `backends` have their classes, none for
    all of them, and their limit."""

    classes: tuple[ClassSpec, ...]
    backends: Mapping[str, tuple[tuple[str, ...], int]]

    @property
    def smallest(self) -> ClassSpec:
        return min(self.classes, key=_bound)

    @property
    def next_bound(self) -> float:
        """What the smallest class's bound must stay below."""
        return min((_bound(one) for one in self.classes if one is not self.smallest), default=0.0)

    def bounded(self, bound: int) -> Settings:
        """With another bound of the smallest class, and queues that let nobody out."""
        classes = (
            replace(one, max_prompt_tokens=bound) if one is self.smallest else one
            for one in self.classes
        )
        return Settings(classes=tuple(classes), queue_wait=UNBOUNDED, burst=BurstSpec())


def read(path: Path) -> Situation:
    """Raises NoSituation, and OSError."""
    try:
        document: Any = orjson.loads(path.read_bytes())
        classes = tuple(
            ClassSpec(
                name,
                one["max_prompt_tokens"],
                limit=one["limit"],
                ttft_target=one["ttft_target"],
                spill=tuple(one["spill"]),
                queue_limit=UNBOUNDED,
            )
            for name, one in document["classes"].items()
        )
        backends = {
            name: (tuple(one["classes"]), int(one["limit"]))
            for name, one in document["backends"].items()
        }
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise NoSituation(f"{path.name} holds no settings: {error!r}") from error
    if len(classes) < 2:
        raise NoSituation("there is only one class: it has no bound")
    return Situation(classes, backends)


def of_log(situation: Situation, requests: Iterable[Seen]) -> Situation:
    """With the backends that the log has, and no other: what is down serves nobody."""
    served: dict[str, set[str]] = {}
    for one in requests:
        served.setdefault(one.backend, set()).add(one.service_class)
    return replace(
        situation,
        backends={
            name: situation.backends.get(name, (tuple(sorted(classes)), LIMIT))
            for name, classes in sorted(served.items())
        },
    )


def play(situation: Situation, spec: EngineSpec, bound: int, jobs: Sequence[Job]) -> list[Outcome]:
    """These requests on this fleet, were that the bound."""
    specs = {
        name: replace(spec, max_num_seqs=limit) for name, (_, limit) in situation.backends.items()
    }
    backends: list[Backend] = [
        ready(name, specs[name], *classes) for name, (classes, _) in situation.backends.items()
    ]
    return Simulation(situation.bounded(bound), specs, backends).run(jobs)


def _bound(one: ClassSpec) -> float:
    return float("inf") if one.max_prompt_tokens is None else one.max_prompt_tokens
