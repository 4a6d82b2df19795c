"""The turns: each policy gets the same conversations before engines with an empty cache."""

import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console

from backends.types import Timeouts
from bench.children import children
from bench.compare.engines import Engines, given, real, simulated
from bench.compare.run import DIRECT, gateway
from bench.load.plan import Lengths
from bench.load.session import Settings, run_load
from bench.load.summary import Objective, detail
from bench.peers.commands import PEERS, Command, Place, forebay
from bench.prefix.conversations import BLOCK, Talk, jobs
from bench.workload import Job

PRESET = "a100-llama-8b"
WITHOUT = "forebay-without-affinity"

_TIMEOUTS = Timeouts(connect=10.0, first_token=120.0, token_gap=120.0, total=180.0)
_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)_total\{.*\} (\d+)", re.MULTILINE)


def without_affinity(place: Place) -> list[str]:
    """Forebay that looks at load alone: the fewest outstanding prompt tokens."""
    settings = place.folder / "forebay.yaml"
    settings.write_text("scheduler: {placement: least_tokens}\n")
    return [*forebay(place), "--config", str(settings)]


POLICIES: dict[str, Command | None] = {
    DIRECT: None,
    WITHOUT: without_affinity,
    **{name: PEERS[name] for name in ("forebay", "nginx", "vllm-router")},
}
"""`direct` is the engines in turn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`kv_tokens` is each simulated engine's cache. There are none of them where servers that run
    already (`urls`) are asked, or a `real` vLLM on the CPU."""

    policies: tuple[str, ...]
    talk: Talk
    engines: int
    kv_tokens: int
    rounds: int
    seed: int = 0
    urls: tuple[str, ...] = ()
    real: bool = False


@dataclass(slots=True)
class Found:
    """By policy, one entry a round: the load's detail and `hit_share`."""

    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


async def measure(plan: Plan, found: Found, tell: Callable[[str], None]) -> None:
    """Raises ChildEnded, CompareFailed, LoadFailed and BuildError."""
    async with _lasting(plan, tell) as lasting:
        for turn in range(plan.rounds * len(plan.policies)):
            number, index = divmod(turn, len(plan.policies))
            policy = plan.policies[index]
            tell(f"round {number + 1} of {plan.rounds}: {policy}")
            # Numbers far apart: no text is known to the engines from an earlier turn.
            apart = number if lasting is None else turn
            talk = replace(plan.talk, first=(1 + apart) * 10_000_000)
            planned = jobs(talk, plan.seed + number)
            async with _engines(plan, lasting) as engines:
                measured = await _turn(plan, policy, planned, engines)
            found.rounds.setdefault(policy, []).append(measured)


@asynccontextmanager
async def _lasting(plan: Plan, tell: Callable[[str], None]) -> AsyncIterator[Engines | None]:
    """Engines that see every turn: real ones. Simulated ones start anew for each."""
    if plan.urls:
        yield await given(plan.urls, None, None)
    elif plan.real:
        with tempfile.TemporaryDirectory(prefix="forebay-prefix-") as logs:
            async with children(Path(logs)) as started:
                yield await real(started, tell)
    else:
        yield None


@asynccontextmanager
async def _engines(plan: Plan, lasting: Engines | None) -> AsyncIterator[Engines]:
    if lasting is not None:
        yield lasting
        return
    flags = ("--kv-tokens", str(plan.kv_tokens))
    with tempfile.TemporaryDirectory(prefix="forebay-prefix-") as logs:
        async with children(Path(logs)) as started:
            yield await simulated(started, plan.engines, PRESET, flags)


async def _turn(plan: Plan, policy: str, planned: list[Job], engines: Engines) -> dict[str, Any]:
    async with gateway(policy, POLICIES[policy], engines) as urls:
        before = await _cache(engines)
        settings = Settings(
            url=urls[0],
            also=urls[1:],
            timeouts=_TIMEOUTS,
            lengths=Lengths(block=BLOCK, short=1 << 30),
            model=engines.model,
            tokenizer=engines.tokenizer,
            warm_up=plan.talk.seconds / 4,
        )
        outcome = await run_load(settings, planned, Console(quiet=True))
        queries, hits = (
            after - earlier for after, earlier in zip(await _cache(engines), before, strict=True)
        )
    measured = detail(outcome.samples, outcome.effort, Objective())
    return measured | {"hit_share": hits / queries if queries else 0.0}


async def _cache(engines: Engines) -> tuple[int, int]:
    """Prompt tokens asked of all engines' prefix caches, and found there."""
    totals = {"queries": 0, "hits": 0}
    async with aiohttp.ClientSession() as http:
        for url in engines.urls:
            async with http.get(f"{url}/metrics") as answer:
                for name, value in _COUNTER.findall(await answer.text()):
                    totals[name] += int(value)
    return totals["queries"], totals["hits"]
