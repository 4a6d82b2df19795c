"""What is heard at a real door, of tickets that end in every way."""

import asyncio
from typing import Any

import pytest

from gateway.tuning.ear import SPACING
from gateway.tuning.memory import Heard
from scheduler.events import Abandoned, Failed, Finished, FirstToken, Progress
from tests.gateway.test_door import House


class Listening(House):
    """A house whose ear is listened to."""

    def __init__(self) -> None:
        super().__init__()
        self.door.open = True
        self.heard: list[Heard] = []
        self.door.ear.heard.append(self.heard.append)

    async def timed(self, **fields: Any) -> str:
        """A ticket that comes long enough after the last one to be timed."""
        await asyncio.sleep(SPACING)
        return self.ask(**fields)[0]

    def tell(self, *events: Any) -> list[Heard]:
        for event in events:
            self.door.report(event)
        told, self.heard[:] = list(self.heard), []
        return told


async def test_a_first_token_is_told_of_when_the_answer_has_ended() -> None:
    house = Listening()
    name = await house.timed()
    assert house.tell(FirstToken(name), Progress(name, 5)) == []
    (heard,) = house.tell(Finished(name))
    assert heard.backend in ("a", "b")
    assert heard.service_class == "short"
    assert heard.ttft is not None
    assert 0.0 <= heard.ttft < 5.0
    assert house.tell(Finished(name)) == []


@pytest.mark.parametrize(
    ("events", "ttfts"),
    [
        ([Finished], []),
        ([FirstToken, Abandoned], [True]),
        ([Abandoned], []),
        ([Failed], [False]),
        ([FirstToken, Failed], [False]),
    ],
)
async def test_what_each_end_tells(events: list[type], ttfts: list[bool]) -> None:
    house = Listening()
    name = await house.timed()
    heard = house.tell(*(event(name) for event in events))
    assert [each.ttft is not None for each in heard] == ttfts


async def test_a_busy_engine_is_no_failed_one() -> None:
    house = Listening()
    assert house.tell(Failed(await house.timed(), busy=True)) == []


async def test_a_rejected_ticket_tells_nothing() -> None:
    house = Listening()
    assert house.tell(Finished(await house.timed(model="unknown"))) == []


async def test_tickets_that_come_close_together_are_not_all_timed() -> None:
    house = Listening()
    names = [await house.timed(), *(house.ask()[0] for _ in range(100))]
    heard = house.tell(*(FirstToken(n) for n in names), *(Finished(n) for n in names))
    assert 1 <= len(heard) < 50


async def test_lengths_are_heard_of_every_ticket_while_somebody_asks() -> None:
    house = Listening()
    house.ask(prompt_tokens=7)
    lengths: list[int] = []
    house.door.ear.lengths = lambda tokens, _: lengths.append(tokens)
    for tokens in (5, 2000):
        house.ask(prompt_tokens=tokens)
    house.door.ear.lengths = None
    house.ask(prompt_tokens=9)
    assert lengths == [5, 2000]
