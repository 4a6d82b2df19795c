"""Class boundaries and burst settings that follow the traffic, over the configured ones.

The rule is `scheduler.tuning`'s, so that the simulator plays the same one. Here is what is around
it in a gateway: on and off, operators' keys, and telling.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from gateway.config import Config
from gateway.control.keys import full
from gateway.settings import scheduler_settings
from gateway.tuning.config import TuningConfig
from gateway.tuning.told import Tell, Told
from scheduler.model import Settings
from scheduler.tuning import Change, Knob, Scene, Supply, Tuner, TuningSpec, knobs


class Adaptation:
    """`sets` says whether an operator's key decides a setting: such a one is left alone, and begins
    again at its configured value when the key is gone."""

    def __init__(
        self,
        sets: Callable[[str, str], bool],
        supply: Callable[[], Sequence[Supply]],
        tell: Tell,
    ) -> None:
        self._sets = sets
        self._supply = supply
        self._tell = tell
        self._config = TuningConfig()
        self._tuner = _tuner(self._config)
        self.values: dict[Knob, float] = {}
        """What is other than configured, now."""

    def arrived(self, tokens: int, now: float) -> None:
        self._tuner.arrived(tokens, now)

    def over(self, config: Config) -> Config:
        """These settings with the adapted values in them."""
        if config.tuning != self._config:
            self._config, self._tuner = config.tuning, _tuner(config.tuning)
            self.values = {}
        self.values = {knob: value for knob, value in self.values.items() if not self._held(knob)}
        if not self.values:
            return config
        found = _with(config, self.values)
        if _order(found) == _order(config):
            return found
        # An operator has moved another class to where this one was.
        self.values = {}
        return config

    def look(self, configured: Config, now: float) -> bool:
        """Follow the traffic by a step; whether any value is another one now."""
        if not configured.tuning.enabled:
            return False
        settings = scheduler_settings(configured)
        present = scheduler_settings(self.over(configured))
        scene = Scene(settings, present, self._supply(), self._pinned(settings))
        changes = self._tuner.look(scene, now)
        for change in changes:
            self.values[change.knob] = change.after
            self._tell(_told(change))
        return bool(changes)

    def _pinned(self, settings: Settings) -> frozenset[Knob]:
        return frozenset(knob for knob in knobs(settings) if self._held(knob))

    def _held(self, knob: Knob) -> bool:
        return self._sets(full(knob.key), knob.field)


def _tuner(config: TuningConfig) -> Tuner:
    return Tuner(TuningSpec(**config.model_dump(exclude={"enabled", "interval"})))


def _with(config: Config, values: Mapping[Knob, float]) -> Config:
    """Not validated: values may meet those of other classes."""
    sections: dict[str, dict[str, float]] = {}
    for knob, value in values.items():
        sections.setdefault(knob.key, {})[knob.field] = value
    classes: dict[str, Any] = {
        name: spec.model_copy(update=_whole(sections.get(f"class:{name}", {})))
        for name, spec in config.classes.items()
    }
    burst = config.burst.model_copy(update=_whole(sections.get("burst", {})))
    return config.model_copy(update={"classes": classes, "burst": burst})


def _whole(fields: Mapping[str, float]) -> dict[str, float]:
    """Lengths are whole numbers."""
    return {name: int(v) if name.endswith("tokens") else v for name, v in fields.items()}


def _order(config: Config) -> list[str] | None:
    """The classes from the smallest to the largest; None where two have one bound."""
    bounds = {name: spec.max_prompt_tokens or inf for name, spec in config.classes.items()}
    ordered = sorted(bounds, key=lambda name: bounds[name])
    distinct = all(bounds[low] < bounds[high] for low, high in pairwise(ordered))
    return ordered if distinct else None


def _told(change: Change) -> Told:
    kind, what = change.knob.key.partition(":")[0], f"{change.knob.field} "
    return Told(kind, change.knob.key, f"{what}{change.before:g} → {change.after:g}", change.why)
