"""Where tickets enter: what a ticket meets on its way in and out, on a real scheduler."""

import asyncio
from typing import Any

from gateway.canary.canaries import Canaries
from gateway.canary.progress import Phase, Progress
from gateway.config import Config
from gateway.door import Door
from gateway.driver import Driver
from gateway.gate import Answer
from gateway.replicas.config import ReplicasConfig
from gateway.replicas.sharing import Sharing
from gateway.settings import scheduler_settings
from gateway.tenancy.allowance import Allowance, Mirror, Refused
from gateway.tenancy.limits import Limits, quotas_of, slots_of
from scheduler.events import (
    Abandoned,
    BackendChanged,
    Dispatch,
    Failed,
    Finished,
    FirstToken,
)
from scheduler.events import (
    Progress as Tokens,
)
from scheduler.model import Backend, BackendState, Ticket


class House:
    """A door, and two backends of one model behind it."""

    def __init__(self, **changes: Any) -> None:
        backends = {name: {"url": f"http://h:{port}"} for name, port in (("a", 1), ("b", 2))}
        config = Config.model_validate({"backends": backends} | changes)
        self.driver = Driver(scheduler_settings(config), lambda _: None)
        for name in backends:
            backend = Backend(name, BackendState.READY, frozenset({"m"}))
            self.driver.apply(BackendChanged(backend))
        self.sharing = Sharing(None, ReplicasConfig(), tuple, lambda _: None)
        self.sharing.configure(slots_of(config), quotas_of(config))
        self.limits = Limits(config, self.sharing)
        self.canaries = Canaries(None, lambda _: None)
        self.canaries.configure(config.canaries)
        self.door = Door(self.driver, self.limits, self.canaries)
        self.door.open = False
        self.number = 0

    def ask(self, **fields: Any) -> tuple[str, list[Answer]]:
        self.number += 1
        heard: list[Answer] = []
        values = {"id": str(self.number), "model": "m", "prompt_tokens": 10, "tenant": "acme"}
        self.door.submit(Ticket(**(values | fields)), heard.append)
        return str(self.number), heard

    def in_flight(self) -> int:
        return sum(backend.in_flight for backend in self.driver.snapshot().backends)


def kinds(heard: list[Answer]) -> list[type]:
    return [type(answer) for answer in heard]


async def test_a_tenants_ticket_hears_its_allowance_before_its_dispatch() -> None:
    house = House(tenants={"acme": {"requests_per_minute": 1}})
    ticket, heard = house.ask()
    assert kinds(heard) == [Allowance, Dispatch]
    house.door.report(Finished(ticket))
    _, heard = house.ask()
    assert kinds(heard) == [Refused]
    assert house.in_flight() == 0


async def test_every_end_frees_what_was_taken() -> None:
    house = House(tenants={"acme": {"concurrent": 1}})
    for end in (Finished, Failed, Abandoned):
        ticket, heard = house.ask()
        assert kinds(heard) == [Dispatch]
        assert kinds(house.ask()[1]) == [Refused]
        house.door.report(end(ticket))
    ticket, heard = house.ask(model="unknown")
    assert kinds(house.ask()[1]) == [Dispatch], "the scheduler's rejection freed it"


async def test_what_failed_costs_nothing_and_what_was_left_costs_all() -> None:
    house = House(tenants={"acme": {"tokens_per_minute": 100}})
    ticket, _ = house.ask(prompt_tokens=60)
    house.door.report(Failed(ticket))
    ticket, heard = house.ask(prompt_tokens=60)
    assert kinds(heard) == [Allowance, Dispatch]
    house.door.report(Abandoned(ticket))
    assert kinds(house.ask(prompt_tokens=60)[1]) == [Refused]


async def test_an_answer_settles_what_it_used() -> None:
    house = House(tenants={"acme": {"tokens_per_minute": 100}})
    ticket, _ = house.ask(prompt_tokens=10, max_tokens=80)
    house.door.report(FirstToken(ticket))
    house.door.report(Tokens(ticket, 5))
    house.door.report(Finished(ticket))
    assert kinds(house.ask(prompt_tokens=85)[1]) == [Allowance, Dispatch]


async def test_a_canary_says_where_and_copies_what_it_should() -> None:
    spec = {"old": ["a"], "new": ["b"], "steps": [0.5, 1], "shadow": 1.0}
    house = House(canaries={"m": spec})
    trial = house.canaries.trials["m"]
    trial.progress = Progress("", Phase.RUNNING, 0, 0.0, 0.0)
    went: dict[str, set[type]] = {"a": set(), "b": set()}
    for _ in range(40):
        ticket, heard = house.ask()
        (dispatch,) = [answer for answer in heard if isinstance(answer, Dispatch)]
        went[dispatch.backend].update(kinds(heard))
        house.door.report(FirstToken(ticket))
        house.door.report(Finished(ticket))
    assert went == {"a": {Mirror, Dispatch}, "b": {Dispatch}}
    seen = trial.take_seen()
    assert seen.old.answers + seen.new.answers == 40
    assert seen.new.answers > 0


async def test_an_open_door_keeps_no_books() -> None:
    house = House()
    house.door.open = True
    ticket, heard = house.ask()
    assert kinds(heard) == [Dispatch]
    house.door.open = False
    house.door.report(Finished(ticket))
    await asyncio.sleep(0)
    assert house.in_flight() == 0
