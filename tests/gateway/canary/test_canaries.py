"""Canaries of several gateways around one Redis, and what single tickets meet."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from gateway.canary.canaries import Canaries
from gateway.canary.config import CanaryConfig
from gateway.canary.progress import Phase, Progress
from gateway.canary.shared import decode, swap
from gateway.canary.trial import Trial
from gateway.control.store import connect
from gateway.tasks import Tasks
from scheduler.model import Ticket
from tests.redis_server import url_of

ORDERS = {Phase.PAUSED: "pause", Phase.ABORTED: "abort", Phase.PROMOTED: "promote"}
QUICK = {
    "old": "a",
    "new": "b",
    "steps": "0.3,1",
    "step_time": 0.2,
    "side_by_side": 0.5,
    "samples": 100,
}


def spec(**changes: Any) -> CanaryConfig:
    return CanaryConfig.model_validate(QUICK | changes)


def at(trial: Trial, step: int, phase: Phase = Phase.RUNNING) -> Trial:
    trial.progress = Progress(trial.spec.run, phase, step, 0.0, 0.0)
    return trial


def goes_new(trial: Trial, **fields: Any) -> bool:
    ticket = Ticket(**({"id": "1", "model": "m", "prompt_tokens": 1} | fields))
    return trial.avoided(ticket) == {"a"}


def test_a_session_stays_where_it_is_while_the_share_grows() -> None:
    trial = Trial(spec(steps="0.01,0.05,0.25,0.5,1"))
    assert not any(goes_new(trial, session=str(n)) for n in range(1000)), "nobody knows yet"
    moved: set[str] = set()
    for step, share in enumerate(trial.spec.steps):
        at(trial, step)
        now = {str(n) for n in range(20_000) if goes_new(trial, session=str(n))}
        assert moved <= now
        assert len(now) == pytest.approx(20_000 * share, rel=0.25)
        moved = now
    assert goes_new(trial, session="x", id="1") == goes_new(trial, session="x", id="2")


@pytest.mark.parametrize(
    ("phase", "new"), [(Phase.ROLLED_BACK, False), (Phase.ABORTED, False), (Phase.PROMOTED, True)]
)
def test_after_the_end_all_go_to_one_group(phase: Phase, new: bool) -> None:
    trial = at(Trial(spec()), 0, phase)
    assert {goes_new(trial, id=str(n)) for n in range(200)} == {new}
    assert goes_new(trial, avoid=frozenset({"c"})) is new


def test_a_retry_may_go_to_the_other_group() -> None:
    trial = at(Trial(spec()), 0, Phase.PROMOTED)
    assert trial.avoided(Ticket("1", "m", 1, avoid=frozenset({"b"}))) == frozenset()
    assert trial.avoided(Ticket("1", "m", 1, avoid=frozenset({"c"}))) == {"a"}


def test_what_a_ticket_says_of_its_group() -> None:
    trial = at(Trial(spec()), 0)
    for number, (backend, ends) in enumerate(
        (("a", "ok"), ("b", "ok"), ("b", "failed"), ("b", "left early"), ("c", "ok"))
    ):
        name = str(number)
        trial.dispatched(name, backend, "short", 1.0)
        if ends == "ok":
            trial.first_token(name, 1.5)
        ways = {"ok": trial.finished, "failed": trial.failed, "left early": trial.abandoned}
        ways[ends](name)
        trial.failed(name)
    seen = trial.take_seen()
    assert (seen.old.answers, seen.old.errors) == (1, 0)
    assert (seen.new.answers, seen.new.errors) == (1, 1)
    assert trial.take_seen().fields() == {}


class Gateway:
    """One gateway's canaries, and requests that end at once with a known TTFT."""

    def __init__(self, redis: str | None, settings: CanaryConfig) -> None:
        self.canaries = Canaries(redis, lambda _: None)
        self.canaries.configure({"m": settings})
        self.tasks = Tasks()
        self.tasks.spawn("canaries", self.canaries.run())
        self.number = 0

    @property
    def trial(self) -> Trial:
        return self.canaries.trials["m"]

    @property
    def progress(self) -> Progress | None:
        return self.trial.progress

    def traffic(self, slowdown: float = 1.0, count: int = 60) -> None:
        for _ in range(count):
            self.number += 1
            ticket = Ticket(f"{id(self)}-{self.number}", "m", 1)
            backend = "b" if "a" in self.canaries.steer(ticket).avoid else "a"
            ttft = (0.1 + 0.001 * (self.number % 50)) * (slowdown if backend == "b" else 1.0)
            self.trial.dispatched(ticket.id, backend, "short", 0.0)
            self.trial.first_token(ticket.id, ttft)
            self.trial.finished(ticket.id)

    async def until(self, phase: Phase, slowdown: float = 1.0) -> None:
        async with asyncio.timeout(15):
            while self.progress is None or self.progress.phase is not phase:
                self.traffic(slowdown)
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.tasks.stop()
        assert self.tasks.failed == 0


@pytest.mark.parametrize(("slowdown", "end"), [(2.0, Phase.ROLLED_BACK), (1.0, Phase.PROMOTED)])
async def test_gateways_agree_on_how_it_ends(redis: Redis, slowdown: float, end: Phase) -> None:
    two = [Gateway(url_of(redis), spec()) for _ in range(2)]
    await asyncio.gather(*(gateway.until(end, slowdown) for gateway in two))
    assert two[0].progress == two[1].progress
    for gateway in two:
        await gateway.stop()


async def test_without_redis_one_gateway_decides_alone() -> None:
    gateway = Gateway(None, spec())
    await gateway.until(Phase.PROMOTED)
    await gateway.stop()


def kept(redis: Redis) -> Progress | None:
    return decode(redis.get("forebay.canary:m"))  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the gateway's next turns bring about."""
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_restart_goes_on_where_it_was(redis: Redis) -> None:
    first = Gateway(url_of(redis), spec(step_time=86_400))
    await first.until(Phase.RUNNING)
    started = first.progress
    await first.stop()
    second = Gateway(url_of(redis), spec(step_time=86_400))
    await second.until(Phase.RUNNING)
    assert second.progress is not None
    assert started is not None
    assert second.progress.started == started.started
    await second.stop()


@pytest.mark.parametrize("phase", [Phase.PAUSED, Phase.ABORTED, Phase.PROMOTED])
async def test_an_emptied_redis_gets_back_how_far_it_is(redis: Redis, phase: Phase) -> None:
    """Else traffic goes back to a group that was retired, or given up."""
    gateway = Gateway(url_of(redis), spec(step_time=86_400, order=ORDERS[phase]))
    await gateway.until(phase)
    before = gateway.progress
    redis.flushall()
    await until(lambda: kept(redis) is not None)
    assert kept(redis) == before
    assert gateway.progress == before
    await gateway.stop()


async def test_who_knows_how_far_it_is_puts_right_who_began_it_anew(redis: Redis) -> None:
    first = Gateway(url_of(redis), spec(order="abort"))
    await first.until(Phase.ABORTED)
    before = first.progress
    assert before is not None
    began_anew = replace(before, phase=Phase.RUNNING, started=before.started + 5.0)
    client = connect(url_of(redis))
    redis.delete("forebay.canary:m")
    assert await swap(client, "m", None, began_anew) == began_anew
    await client.aclose()
    await until(lambda: kept(redis) == before)
    assert first.progress == before
    await first.stop()


async def test_how_far_it_is_never_expires(redis: Redis) -> None:
    gateway = Gateway(url_of(redis), spec(order="abort"))
    await gateway.until(Phase.ABORTED)
    assert redis.ttl("forebay.canary:m") == -1
    redis.expire("forebay.canary:m", 1000)  # as Forebay did before
    await until(lambda: redis.ttl("forebay.canary:m") == -1)
    await gateway.stop()


async def test_what_is_no_state_of_ours_is_begun_anew(redis: Redis) -> None:
    redis.set("forebay.canary:m", '{"phase": "dancing"}')
    gateway = Gateway(url_of(redis), spec(step_time=86_400))
    await gateway.until(Phase.RUNNING)
    assert decode(redis.get("forebay.canary:m")) == gateway.progress  # type: ignore[arg-type]
    await gateway.stop()
