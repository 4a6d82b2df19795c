"""Settings that follow the traffic: where a class ends, what a burst prompt is. Pure.

Rules, with their reasons in docs/adr/online-tuning.md:

- *A class's bound* gives its backends the part of the work that they are of all backends, by
  measured prefill rates, and does not grow to prompts that take half of its target by themselves.
  Where the next larger class spills over to them, it stays.
- *A burst prompt* is rare, and alone takes as long as the smallest class may wait.
- *A pool recovers* from a burst by a step in the time that a burst prompt takes.

A value moves only when it is off by a margin, to a place from which the margin lies ahead in both
directions; not again before `dwell` seconds; and within a factor of what is configured. Limits on
requests in flight adapt elsewhere (`burst`).
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import NamedTuple

from scheduler.lengths import EDGES, Distribution, Lengths
from scheduler.model import ClassSpec, Settings

# How far a value must be off that follows a measured rate: estimates of rates move by a tenth.
_FAR = 1.5
# The part of a class's target that a prompt's own prefill may take.
_OWN = 0.5
# Bounds that leave less than this share of the work on another side are as good as each other.
_ALIKE = 0.01

BOUND = "max_prompt_tokens"


class Knob(NamedTuple):
    """One setting, named as the operators' keys name it."""

    key: str
    field: str


BURST_SIZE = Knob("burst", "prompt_tokens")
BURST_RECOVERY = Knob("burst", "clean_interval")


@dataclass(frozen=True, slots=True)
class TuningSpec:
    """`samples` prompts must be remembered before anything moves; each is forgotten with `memory`.
    `span` bounds a value to its configured one divided and multiplied by it; `margin` is how far a
    share of the work must be off; `burst_share` of the prompts, at most, are burst prompts.
    """

    memory: float = 300.0
    samples: int = 500
    dwell: float = 120.0
    span: float = 4.0
    margin: float = 0.1
    burst_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Supply:
    """A ready backend: prompt tokens per second, measured, and its classes (empty: all)."""

    rate: float
    classes: frozenset[str] = frozenset()

    def serves(self, service_class: str) -> bool:
        return not self.classes or service_class in self.classes


@dataclass(frozen=True, slots=True)
class Scene:
    """What a look sees: settings as configured and as they are, backends, and what is not ours to
    change because an operator has set it."""

    configured: Settings
    present: Settings
    backends: Sequence[Supply]
    pinned: AbstractSet[Knob] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A value that should be another one; `why` is for a person, with the numbers."""

    knob: Knob
    before: float
    after: float
    why: str


class Tuner:
    """Remembers what came and when a value last moved; the values themselves are the caller's."""

    def __init__(self, spec: TuningSpec) -> None:
        self._spec = spec
        self._lengths = Lengths(spec.memory)
        self._moved: dict[Knob, float] = {}

    def arrived(self, tokens: int, now: float) -> None:
        self._lengths.add(tokens, now)

    def look(self, scene: Scene, now: float) -> list[Change]:
        """What should change now."""
        if not scene.backends or self._lengths.seen(now) < self._spec.samples:
            return []
        seen = self._lengths.distribution()
        changes = [
            change
            for change in (*_bounds(scene, seen, self._spec), *_burst(scene, seen, self._spec))
            if change.knob not in scene.pinned and self._rested(change.knob, now)
        ]
        self._moved.update((change.knob, now) for change in changes)
        return changes

    def _rested(self, knob: Knob, now: float) -> bool:
        return now - self._moved.get(knob, -inf) >= self._spec.dwell


def adapted(settings: Settings, values: Mapping[Knob, float]) -> Settings:
    """The settings with these values in them; of classes that are gone there is nothing to set."""
    classes = tuple(
        replace(spec, max_prompt_tokens=int(values.get(_knob(spec), spec.max_prompt_tokens)))
        if spec.max_prompt_tokens is not None
        else spec
        for spec in settings.classes
    )
    burst = replace(
        settings.burst,
        prompt_tokens=int(values.get(BURST_SIZE, settings.burst.prompt_tokens)),
        clean_interval=values.get(BURST_RECOVERY, settings.burst.clean_interval),
    )
    return replace(settings, classes=classes, burst=burst)


def knobs(settings: Settings) -> set[Knob]:
    """All that may move."""
    bounded = (spec for spec in settings.classes if spec.max_prompt_tokens is not None)
    return {BURST_SIZE, BURST_RECOVERY, *map(_knob, bounded)}


def _knob(spec: ClassSpec) -> Knob:
    return Knob(f"class:{spec.name}", BOUND)


# --- where classes end -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a bound should be like: the share of the work below it, and the most it may be."""

    share: float
    most: float


def _bounds(scene: Scene, seen: Distribution, spec: TuningSpec) -> Iterator[Change]:
    ordered = sorted(scene.present.classes, key=_bound)
    configured = {each.name: each.max_prompt_tokens for each in scene.configured.classes}
    capacity = {each.name: _capacity(each.name, len(ordered), scene) for each in ordered}
    if not all(capacity.values()):
        return  # An outage is no reason to sort prompts differently.
    total, below, low = sum(capacity.values()), 0.0, 0.0
    for each, larger in pairwise(ordered):
        below += capacity[each.name]
        wanted = _Wanted(below / total, _own_limit(each, scene))
        base = configured.get(each.name)
        # Spilling shares the work out prompt by prompt, which no boundary can better.
        if base is not None and each.name not in larger.spill:
            places = [
                edge
                for edge in EDGES
                if max(base / spec.span, low + 1) <= edge <= base * spec.span
                and edge < _bound(larger)
            ]
            for change in _move(each, places, (seen, wanted), spec.margin):
                low = change.after
                yield change
        # Whether or not it moves in the end, the next one stays above it.
        low = max(low, _bound(each))


def _move(
    spec: ClassSpec, places: Sequence[int], facts: tuple[Distribution, _Wanted], margin: float
) -> Iterator[Change]:
    """Up or down to the best of the places, if the bound is off by the margin."""
    (seen, wanted), present = facts, _bound(spec)
    share = seen.work_up_to(present)
    down = share > wanted.share + margin or present > wanted.most * _FAR
    goal = wanted.share if down else wanted.share - margin / 2
    good = [
        place
        for place in places
        if (place < present) == down
        and seen.work_up_to(place) <= goal + 1e-9
        and place <= wanted.most
    ]
    if not good:
        return
    best = seen.work_up_to(good[-1])
    alike = [place for place in good if best - seen.work_up_to(place) <= _ALIKE]
    # In the middle of a gap between lengths, where the next few prompts move nothing.
    after = alike[len(alike) // 2]
    if abs(seen.work_up_to(after) - share) < margin:
        return
    yield Change(
        _knob(spec),
        present,
        after,
        f"{share:.0%} of the work was in prompts up to {present:g} tokens, for backends that are "
        f"{wanted.share:.0%} of all; {seen.work_up_to(after):.0%} is in those up to {after}",
    )


def _own_limit(spec: ClassSpec, scene: Scene) -> float:
    """The longest prompt whose own prefill leaves half of the class's target for waiting."""
    rates = [backend.rate for backend in scene.backends if backend.serves(spec.name)]
    return _OWN * spec.ttft_target * sum(rates) / len(rates)


def _capacity(service_class: str, classes: int, scene: Scene) -> float:
    """Tokens a second; a backend of several classes counts in equal parts."""
    return sum(
        backend.rate / (len(backend.classes) or classes)
        for backend in scene.backends
        if backend.serves(service_class)
    )


def _bound(spec: ClassSpec) -> float:
    return inf if spec.max_prompt_tokens is None else spec.max_prompt_tokens


# --- bursts ----------------------------------------------------------------------------------


def _burst(scene: Scene, seen: Distribution, spec: TuningSpec) -> Iterator[Change]:
    present, base = scene.present.burst, scene.configured.burst
    if present.in_flight is None and present.prompts is None and present.tokens is None:
        return
    rate = sum(backend.rate for backend in scene.backends) / len(scene.backends)
    smallest = min(scene.present.classes, key=_bound)
    heavy = rate * smallest.ttft_target

    def within(value: float, middle: float) -> float:
        return min(max(value, middle / spec.span), middle * spec.span)

    size, share = present.prompt_tokens, seen.longer_than(present.prompt_tokens)
    rare = within(max(seen.quantile(spec.burst_share), heavy), base.prompt_tokens)
    rarer = within(max(seen.quantile(spec.burst_share / 2), heavy), base.prompt_tokens)
    after = size
    common = share > 2 * spec.burst_share and rare > size
    if common or within(heavy, base.prompt_tokens) > size * _FAR:
        after = int(rare)
    elif rarer < size / _FAR:
        after = int(rarer)
    if after != size:
        yield Change(
            BURST_SIZE,
            size,
            after,
            f"{share:.1%} of the prompts were longer than {size} tokens and "
            f"{seen.longer_than(after):.1%} are longer than {after}; a prefill of "
            f"{smallest.ttft_target:g} s is {heavy:.0f}",
        )
    typical = seen.mean_longer_than(after)
    wanted = round(within(typical / rate, base.clean_interval), 2)
    if typical and not 1 / _FAR < wanted / present.clean_interval < _FAR:
        yield Change(
            BURST_RECOVERY,
            present.clean_interval,
            wanted,
            f"a burst prompt has {typical:.0f} tokens, which take {typical / rate:.2f} s",
        )
