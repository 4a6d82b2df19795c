"""Advice for a fleet, and what is done with it: on engines that only remember their share."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from backends.managed.node import NotBack
from backends.types import BackendSpec, BackendStatus, Capabilities, ServedModel, State
from gateway.config import Config
from gateway.tuning.advisor import Advisor
from gateway.tuning.carrying import Carrying
from gateway.tuning.config import UtilizationConfig
from gateway.tuning.memory import Heard
from gateway.tuning.report import AdviceCollector
from gateway.tuning.told import Told

NIGHT = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MODEL = (ServedModel("m", "/m", 4096),)


def status(name: str, state: State = State.READY, share: float | None = None) -> BackendStatus:
    found = Capabilities("0.32.0", MODEL, memory_utilization=share)
    return BackendStatus(BackendSpec(name, "http://h"), state, found, "")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"apply": True}, "needs windows"), ({"low": 1.0}, "low must be below high")],
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        UtilizationConfig.model_validate(wrong)


class House:
    """Two engines `a` and `b`, of which `a` is ours; what was told of them."""

    def __init__(self, **utilization: Any) -> None:
        wanted = {"apply": True, "windows": ["* 2-4 * * *"], "samples": 40} | utilization
        backends = {"a": {"url": "http://h:1"}, "b": {"url": "http://h:2"}}
        self.config = Config.model_validate({"backends": backends, "utilization": wanted})
        self.statuses = [status("a", share=0.92), status("b", share=0.88)]
        self.advisor = Advisor(lambda: self.config, lambda: self.statuses)
        self.engines = {"a": 0.85}
        self.advisor.managed = self.values
        self.back = True
        self.told: list[Told] = []
        self.carrying = Carrying(
            self.advisor, self, lambda: self.config.utilization, self.told.append
        )

    def values(self) -> Mapping[str, float]:
        return self.engines

    async def restart(self, engine: str, value: float, why: str) -> None:
        if not self.back:
            raise NotBack(f"{engine} takes no traffic")
        self.engines[engine] = value

    def traffic(self, ttft: float, backend: str = "a", count: int = 40) -> None:
        for _ in range(count):
            self.advisor.heard(Heard(backend, "short", ttft))


def test_shares_come_from_the_engines_and_from_ours_first() -> None:
    house = House()
    house.traffic(0.9)
    house.traffic(0.1, "b")
    assert [(a.backend, a.present, a.wanted) for a in house.advisor.advices()] == [
        *(("a", 0.85, 0.80), ("b", 0.88, 0.90)),
    ]
    (gauge,) = AdviceCollector(house.advisor).collect()
    assert {(*s.labels.values(), s.value) for s in gauge.samples} == {
        *(("a", "present", 0.85), ("a", "recommended", 0.80)),
        *(("b", "present", 0.88), ("b", "recommended", 0.90)),
    }


def test_a_target_is_its_class_s_own_and_an_error_is_no_ttft() -> None:
    house = House()
    for _ in range(10):
        house.advisor.heard(Heard("a", "long", 4.0))
        house.advisor.heard(Heard("a", "gone", 400.0))
        house.advisor.heard(Heard("a", "long", None))
    assert house.advisor.advices()[0].why == (
        "the last 10 TTFTs are 0.80 of their target on average"
    )


def test_what_was_before_a_restart_is_forgotten() -> None:
    house = House()
    house.traffic(0.9)
    house.advisor.status_changed(status("a"))
    assert house.advisor.group("a").answers == 40
    house.advisor.status_changed(status("a", State.DOWN))
    assert house.advisor.group("a").answers == 0
    house.traffic(0.9)
    house.statuses = [status("b")]
    house.advisor.advices()
    assert house.advisor.group("a").answers == 0


async def test_advice_is_carried_out_in_a_window_and_only_there() -> None:
    house = House()
    house.traffic(0.9)
    await house.carrying.look(NOON)
    assert house.told == []
    await house.carrying.look(NIGHT)
    assert house.engines == {"a": 0.80}
    assert [(told.kind, told.subject, told.what) for told in house.told] == [
        ("restart", "a", "gpu-memory-utilization 0.85 → 0.8: restarting")
    ]


async def test_without_apply_nothing_is_carried_out() -> None:
    house = House(apply=False)
    house.traffic(0.9)
    await house.carrying.look(NIGHT)
    assert house.engines == {"a": 0.85}
    assert house.advisor.advices()[0].wanted == 0.80


async def test_the_last_ready_backend_of_a_model_is_never_restarted() -> None:
    house = House()
    house.traffic(0.9)
    for other in (status("b", State.DOWN), status("a")):
        house.statuses = [status("a"), other]
        await house.carrying.look(NIGHT)
        assert house.told == []


async def test_an_engine_that_does_not_come_back_is_given_its_old_share() -> None:
    house = House()
    house.traffic(0.9)
    house.back = False
    await house.carrying.look(NIGHT)
    assert [(told.kind, told.why) for told in house.told] == [
        ("restart", "the last 10 TTFTs are 1.50 of their target on average, over 1"),
        ("restart", "a takes no traffic"),
        ("rolled_back", "a takes no traffic; then a takes no traffic"),
    ]


async def test_a_trial_that_somebody_else_ends_is_told_of() -> None:
    house = House()
    house.traffic(0.9)
    await house.carrying.look(NIGHT)
    house.engines["a"] = 0.9
    await house.carrying.look(NOON)
    assert house.told[-1].kind == "overtaken"
    assert house.told[-1].what == "gpu-memory-utilization is 0.9 now: the trial is over"
    assert house.told[-1].why == "somebody else has restarted the engine"
