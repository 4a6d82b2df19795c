"""The run: load and mischief together, then peace, then what is left."""

import asyncio
from collections import Counter
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from random import Random

import orjson
from prometheus_client.parser import text_string_to_metric_families

from backends.client import Client, ClientLimits
from backends.types import BackendSpec
from bench.chaos.client import Verdict, ask, name_of
from bench.chaos.fleet import Fleet
from bench.chaos.mischief import Mischief
from bench.scenarios import Report
from bench.stack import Stack, fail, running

LIMIT = 30.0
"""What a client waits at most. The gateway's own limits, below, end every request before that."""
SETTINGS = {
    "workers": 1,
    "retry_share": 0.2,
    "warm": {"requests": 4, "keep_warm_after": 5.0},
    "timeouts": {"queue_wait": 8, "connect": 1, "first_token": 3, "token_gap": 2, "total": 20},
}


@dataclass(frozen=True, slots=True)
class Chaos:
    """How much of it. `every` is the mean time between two troubles, in seconds. For `looks`
    seconds is looked at what there is before, and for as long as `patience` at what is left."""

    requests: int = 2000
    concurrency: int = 64
    every: float = 0.5
    seed: int = 1
    looks: int = 8
    patience: int = 30


@dataclass(slots=True)
class _Seen:
    verdicts: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)
    more_ends: int = 0

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.kind] += 1
        self.more_ends += verdict.ends > 1
        if verdict.kind == "told":
            self.told[verdict.why] += 1
        elif verdict.kind in ("wrong", "hung"):
            self.strange.append(verdict.why)


@dataclass(frozen=True, slots=True)
class _Left:
    """What there is when nothing is asked of the gateway: in it, and by what the engines say. They
    count the gateway's own requests too, by which it keeps them warm."""

    descriptors: int
    tasks: int
    in_flight: int
    engines_in_flight: int

    def least(self, other: "_Left") -> "_Left":
        """Of each, the lesser one."""
        return _Left(*map(min, astuple(self), astuple(other)))

    def within(self, other: "_Left") -> bool:
        """Nothing of it is more than in the other one."""
        return self.least(other) == self


async def measure(chaos: Chaos, fleet: Fleet, folder: Path) -> Report:
    """Raises NotReady and ChildEnded."""
    within = fleet.ready_within
    async with running(folder, fleet.plan, fleet.managed, SETTINGS, ready_within=within) as stack:
        before = await _settled(stack, chaos.looks)
        none_asked = replace(before, in_flight=0, engines_in_flight=0)
        seen = _Seen()
        mischief = Mischief(stack.node, stack.http, fleet.kinds, Random(chaos.seed))
        await _load(chaos, stack, seen, mischief, model=fleet.model)
        if fleet.obeys:
            await _make_peace(stack)
        await stack.until_ready(within)
        after = await _settled(stack, chaos.patience, enough=none_asked)
    # The gateway has ended: its request log is complete.
    lines = _lines_per_request(stack.log)
    ids = [name_of(number) for number in range(chaos.requests)]
    return Report(
        summary={
            "requests": sum(seen.verdicts.values()),
            "hung": seen.verdicts["hung"],
            "wrong": seen.verdicts["wrong"],
            "ended_twice": seen.more_ends + sum(lines[name] > 1 for name in ids),
            "unrecorded": sum(lines[name] == 0 for name in ids),
            "in_flight_end": after.in_flight,
            "engines_in_flight_end": after.engines_in_flight,
            "fd_growth": max(0, after.descriptors - before.descriptors),
            "task_growth": max(0, after.tasks - before.tasks),
            "whole": seen.verdicts["whole"],
            "told": seen.verdicts["told"],
            "cut": seen.verdicts["cut"],
            "troubles": mischief.done.total(),
        },
        detail={
            "troubles": dict(mischief.done),
            "told": dict(seen.told),
            "strange": seen.strange[:20],
            "engine_starts": {n: e.starts for n, e in stack.node.engines.items()},
            "before": [before.descriptors, before.tasks],
            "after": [after.descriptors, after.tasks],
        },
    )


async def _load(chaos: Chaos, stack: Stack, seen: _Seen, mischief: Mischief, *, model: str) -> None:
    """So many clients, each with one request at a time, until all were asked."""
    rng = Random(chaos.seed)
    numbers = iter(range(chaos.requests))
    client = Client(BackendSpec("gateway", stack.url), ClientLimits(connections=4096))

    async def one_client() -> None:
        for number in numbers:
            stream = rng.random() < 0.7
            seen.add(await ask(client, number, model=model, stream=stream, limit=LIMIT))

    async with asyncio.TaskGroup() as group:
        troubling = group.create_task(mischief.run(every=chaos.every), name="mischief")
        async with asyncio.TaskGroup() as load:
            for _ in range(chaos.concurrency):
                load.create_task(one_client(), name="client")
        troubling.cancel()
    await client.close()


async def _make_peace(stack: Stack) -> None:
    """The troubles that are still in store are called off; engines that are down come back."""
    for spec in stack.backends:
        while not await fail(stack.http, spec.url, "none", None):  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.1)


async def _settled(stack: Stack, looks: int, enough: _Left | None = None) -> _Left:
    """The least of several looks, up to one that is `enough`: what has just ended is closed a
    moment later."""
    least = await _look(stack)
    for _ in range(looks):
        if enough and least.within(enough):
            break
        await asyncio.sleep(1.0)
        least = least.least(await _look(stack))
    return least


async def _look(stack: Stack) -> _Left:
    return _Left(
        descriptors=stack.descriptors(),
        tasks=int(await stack.metric("forebay_tasks")),
        in_flight=int(await stack.metric("forebay_in_flight_requests")),
        engines_in_flight=await _engines_count(stack),
    )


async def _engines_count(stack: Stack) -> int:
    """What the engines themselves say that they have."""
    total = 0
    for spec in stack.backends:
        async with stack.http.get(f"{spec.url}/metrics") as answer:
            page = await answer.text()
        for family in text_string_to_metric_families(page):
            if family.name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
                total += sum(int(sample.value) for sample in family.samples)
    return total


def _lines_per_request(log: Path) -> Counter[str]:
    with log.open("rb") as file:
        return Counter(orjson.loads(line)["request_id"] for line in file)
