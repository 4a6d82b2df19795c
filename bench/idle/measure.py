"""The time to first token after so many seconds of idleness, three ways side by side:

warm      through a gateway that keeps its engine warm
cooling   through a gateway that does not
direct    from a client that keeps its connection, which vLLM closes after 5 s

Simulated engines have one each and are measured at the same time. A real vLLM is started, or a
given one asked, for one way after the other: what keeps it warm for one would do so for all.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from backends.client import Client
from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Engine, Plan
from backends.types import BackendSpec
from bench.first_token import first_token
from bench.scenarios import Report
from bench.stack import running

WORDS = 128
NEVER = 86_400.0
WAYS = ("warm", "cooling", "direct")
Found = dict[float, list[float]]


@dataclass(frozen=True, slots=True)
class Idle:
    """What is measured. `engine` makes the plan of one engine, `managed` says how it is started;
    `together`: the ways have engines of their own. `keep_after` is the gateway's own default.
    A `given` server takes the engine's place, and nothing is started."""

    engine: Engine
    managed: ManagedSettings
    model: str
    idles: Sequence[float]
    rounds: int
    together: bool
    ready_within: float
    keep_after: float = 10.0
    given: BackendSpec | None = None


async def measure(idle: Idle, engines: Mapping[str, Engine], folder: Path) -> Report:
    """Raises NotReady, ChildEnded, RequestFailed and BackendError."""
    found: dict[str, Found] = {}
    tokens: dict[str, float] = {}

    async def one(way: str) -> None:
        place = folder / way
        place.mkdir()
        found[way], tokens[way] = await _way(idle, way, engines[way], place)

    if idle.together:
        await asyncio.gather(*(one(way) for way in WAYS))
    else:
        for way in WAYS:
            await one(way)
    summary = {
        f"{way}_{seconds:g}s_ms": round(median(times) * 1e3, 2)
        for way in WAYS
        for seconds, times in found[way].items()
    }
    longest = max(idle.idles)
    summary["cooling_over_warm"] = round(
        median(found["cooling"][longest]) / median(found["warm"][longest]), 2
    )
    summary["keep_warm_prompt_tokens"] = tokens["warm"]
    detail: dict[str, Any] = {
        way: {f"{seconds:g}": [round(t, 5) for t in times] for seconds, times in each.items()}
        for way, each in found.items()
    }
    return Report(summary, detail)


async def _way(idle: Idle, way: str, engine: Engine, place: Path) -> tuple[Found, float]:
    """Also what keeping the engine warm has cost since it was ready, in prompt tokens."""
    keep = idle.keep_after if way == "warm" else NEVER
    settings = {"workers": 1, "warm": {"requests": 4, "keep_warm_after": keep}}
    found: Found = {seconds: [] for seconds in idle.idles}
    given = () if idle.given is None else (idle.given,)
    plan, within = Plan(() if given else (engine,)), idle.ready_within
    async with running(
        place, plan, idle.managed, settings, ready_within=within, given=given
    ) as stack:
        (spec,) = stack.backends
        client = Client(BackendSpec(way, spec.url if way == "direct" else stack.url))
        for _ in range(5):
            await first_token(client, idle.model, WORDS)
        before = await stack.metric("forebay_warm_prompt_tokens_total")
        for _ in range(idle.rounds):
            for seconds in idle.idles:
                await asyncio.sleep(seconds)
                found[seconds].append(await first_token(client, idle.model, WORDS))
        await client.close()
        spent = await stack.metric("forebay_warm_prompt_tokens_total") - before
    return found, spent
