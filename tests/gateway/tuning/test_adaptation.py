"""What follows the traffic, over the configured settings: on, off, and operators first."""

from typing import Any

import pytest

from gateway.config import Config
from gateway.tuning.adaptation import Adaptation
from gateway.tuning.told import Told
from scheduler.tuning import Knob, Supply

BACKENDS = {"s": {"url": "http://h:1"}, "l": {"url": "http://h:2"}}
SHORT = Knob("class:short", "max_prompt_tokens")
BURST = Knob("burst", "prompt_tokens")


class House:
    """An adaptation with two backends, and an operator who may set things."""

    def __init__(self, **changes: Any) -> None:
        tuning = {"enabled": True, "samples": 100} | changes.pop("tuning", {})
        self.config = Config.model_validate({"backends": BACKENDS, "tuning": tuning} | changes)
        self.supply = [Supply(4_000.0, frozenset({"short"})), Supply(4_000.0, frozenset({"long"}))]
        self.set: set[tuple[str, str]] = set()
        self.told: list[Told] = []
        self.adaptation = Adaptation(
            lambda key, field: (key, field) in self.set, lambda: self.supply, self.told.append
        )
        self.now = 0.0
        self.adaptation.over(self.config)

    def passages(self) -> bool:
        """More is in prompts over the short class's bound than its backends are; look at that."""
        self.now += 1000.0
        for tokens, count in ((1040, 800), (8000, 200)):
            for _ in range(count):
                self.adaptation.arrived(tokens, self.now)
        return self.adaptation.look(self.config, self.now)

    def bound(self) -> int | None:
        return self.adaptation.over(self.config).classes["short"].max_prompt_tokens


def test_values_that_follow_the_traffic_are_in_force_and_told() -> None:
    house = House()
    assert house.passages()
    found = house.adaptation.over(house.config)
    bound = found.classes["short"].max_prompt_tokens
    assert bound is not None
    assert 1040 <= bound <= 0.5 * 0.6 * 4_000
    assert found.burst.prompt_tokens == 8192
    assert found.classes["long"] == house.config.classes["long"]
    assert {told.subject for told in house.told} == {"class:short", "burst"}
    told = next(told for told in house.told if told.kind == "class")
    assert told.what == f"max_prompt_tokens 1024 → {bound}"
    assert "of the work was in prompts up to 1024 tokens" in told.why


def test_it_is_off_unless_it_is_turned_on() -> None:
    house = House(tuning={"enabled": False})
    assert not house.passages()
    assert house.adaptation.over(house.config) == house.config
    assert Config.model_validate({"backends": BACKENDS}).tuning.enabled is False


def test_turning_it_off_brings_the_configured_values_back() -> None:
    house = House()
    house.passages()
    off = house.config.tuning.model_copy(update={"enabled": False})
    house.config = house.config.model_copy(update={"tuning": off})
    assert house.bound() == 1024
    assert house.adaptation.values == {}


def test_an_operator_s_value_stays_and_after_it_the_configured_one() -> None:
    house = House()
    house.passages()
    assert house.bound() != 1024
    house.set.add(("forebay:class:short", "max_prompt_tokens"))
    assert house.bound() == 1024  # what the operator has set is in the config
    assert not house.passages()
    assert SHORT not in house.adaptation.values
    assert BURST in house.adaptation.values
    house.set.clear()
    assert house.bound() == 1024
    assert house.passages()
    assert house.bound() != 1024


@pytest.mark.parametrize("medium", [1050, 1030])
def test_an_operator_may_move_another_class_to_or_past_an_adapted_bound(medium: int) -> None:
    classes = {"short": {"max_prompt_tokens": 1024}, "medium": {"max_prompt_tokens": 4000}}
    house = House(classes=classes | {"long": {}})
    house.supply = [Supply(4_000.0)]
    house.adaptation.values[SHORT] = 1050.0
    house.config = Config.model_validate(
        house.config.model_dump()
        | {"classes": classes | {"medium": {"max_prompt_tokens": medium}, "long": {}}}
    )
    found = house.adaptation.over(house.config)
    bounds = {name: spec.max_prompt_tokens for name, spec in found.classes.items()}
    assert bounds == {"short": 1024, "medium": medium, "long": None}
    assert house.adaptation.values == {}
