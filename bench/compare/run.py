"""The turns: each gateway is started, gets its share of the requests, and ends, round by round.

Only one gateway runs at a time, so that none costs another anything. In each round all get the same
requests at the same times; the texts differ, so that no router knows a prefix from an earlier run.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from backends.types import Timeouts
from bench.children import ChildEnded, children
from bench.compare.engines import CompareFailed, Engines, until_ok
from bench.compare.scenarios import SCENARIOS, Pace
from bench.demo import HOST, DemoFailed, check_port, free_port
from bench.load.discover import LoadFailed
from bench.load.plan import Lengths
from bench.load.session import Settings, run_load
from bench.load.summary import Objective, detail
from bench.peers.commands import PEERS, Command, Place

DIRECT = "direct"
READY_WITHIN = 120.0
"""Seconds; LiteLLM takes 20 on a busy machine."""

_TIMEOUTS = Timeouts(connect=10.0, first_token=120.0, token_gap=120.0, total=180.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """`peers` in the order of the first round; each later one begins with another."""

    scenarios: tuple[str, ...]
    peers: tuple[str, ...]
    rounds: int
    pace: Pace


@dataclass(slots=True)
class Found:
    """By scenario and peer one detail a round (bench.load.summary); peers that failed, and why."""

    rounds: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def compare(plan: Plan, engines: Engines, found: Found, tell: Callable[[str], None]) -> None:
    """Let all peers serve the plan's scenarios before these engines; adds to `found`."""
    for number in range(plan.rounds):
        for peer in _turned(plan.peers, number):
            if peer in found.failed:
                continue
            tell(f"round {number + 1} of {plan.rounds}: {peer}")
            try:
                async with gateway(peer, PEERS.get(peer), engines) as urls:
                    for name in plan.scenarios:
                        measured = await _measure(plan, name, number, peer, engines, urls)
                        found.rounds.setdefault(name, {}).setdefault(peer, []).append(measured)
            except ChildEnded as ended:
                found.failed[peer] = f"{ended}: {ended.log[-300:]}"
            except (CompareFailed, LoadFailed) as failed:
                found.failed[peer] = str(failed)


def _turned(peers: Sequence[str], number: int) -> list[str]:
    turn = number % len(peers)
    return [*peers[turn:], *peers[:turn]]


@asynccontextmanager
async def gateway(
    peer: str, command: Command | None, engines: Engines
) -> AsyncIterator[tuple[str, ...]]:
    """The addresses to ask: the gateway's, or without a command the engines' own.

    Raises ChildEnded when it ends by itself, CompareFailed when it gives no answer.
    """
    if command is None:
        yield engines.urls
        return
    with tempfile.TemporaryDirectory(prefix="forebay-compare-") as folder:
        port = _two_free_ports()
        first, *others = engines.upstreams
        place = Place(port, first, Path(folder), tuple(others), engines.model)
        async with children(Path(folder)) as started:
            await started.start(peer, *command(place))
            url = f"http://{HOST}:{port}"
            await until_ok(f"{url}/v1/chat/completions", READY_WITHIN, _question(engines.model))
            yield (url,)


def _two_free_ports() -> int:
    """The first of two neighbours: some gateways have their metrics on the next one."""
    while True:
        port = free_port()
        with suppress(DemoFailed, OverflowError):
            check_port(port + 1)
            return port


def _question(model: str) -> bytes:
    messages = [{"role": "user", "content": "Are you there?"}]
    return orjson.dumps({"model": model, "messages": messages, "max_tokens": 1})


async def _measure(
    plan: Plan, name: str, number: int, peer: str, engines: Engines, urls: tuple[str, ...]
) -> dict[str, Any]:
    scenario = SCENARIOS[name]
    settings = Settings(
        url=urls[0],
        also=urls[1:],
        timeouts=_TIMEOUTS,
        lengths=Lengths(),
        model=engines.model,
        tokenizer=engines.tokenizer,
        warm_up=scenario.warm_up * plan.pace.seconds,
        seed=1000 * number + list(plan.peers).index(peer),
    )
    jobs = scenario.jobs(plan.pace, number)
    outcome = await run_load(settings, jobs, Console(quiet=True))
    return detail(outcome.samples, outcome.effort, Objective())
