"""`python -m bench control`: every promise of the control plane, measured."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.control.canary import canary
from bench.control.changes import effects, refusals
from bench.control.fleet import Fleet, Setup, fleet
from bench.control.loss import loss
from bench.control.quota import quota
from bench.control.slots import slots

Work = Coroutine[Any, Any, dict[str, Any]]

FAST = ("--prefill-us", "20")
UNCACHED = ("--no-enable-prefix-caching",)
SLOW_STEPS = ("--step-ms", "20")
LIMIT = 8
SETTINGS: dict[str, Any] = {
    "backends": {
        "short-0": {"classes": ["short"]},
        "short-1": {"classes": ["short"]},
        "long-0": {"classes": ["long"]},
    },
    "warm": {"requests": 2},
}


class Part(StrEnum):
    """What is measured; all of it when none is named."""

    CHANGES = "changes"
    LOSS = "loss"
    QUOTA = "quota"
    SLOTS = "slots"
    CANARY = "canary"


def engines(**flags: Sequence[str]) -> Setup:
    """Engines by the backend's name, `_` for `-`."""
    named = {name.replace("_", "-"): flags for name, flags in flags.items()}
    return Setup(named, SETTINGS)


def control(
    parts: Annotated[list[Part] | None, typer.Argument(help="Default: all.")] = None,
    file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures here.")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="A tenth of the requests, Redis gone for 5 s.")
    ] = False,
) -> None:
    """Three gateways: changes, loss of Redis, quotas, slots and canaries under load."""
    figures: dict[str, Any] = {}
    for part in parts or list(Part):
        figures[part.value] = asyncio.run(_PARTS[part](quick))
        print(json.dumps({part.value: figures[part.value]}, indent=2), flush=True)
    if file is not None:
        file.write_text(json.dumps(figures, indent=2))


async def _changes(_quick: bool) -> dict[str, Any]:
    async def both(running: Fleet) -> dict[str, Any]:
        return {"effect": await effects(running), "invalid": await refusals(running)}

    return await _on(engines(short_0=FAST, short_1=FAST, long_0=FAST), both)


async def _loss(quick: bool) -> dict[str, Any]:
    away, rate = (5.0, 20.0) if quick else (30.0, 40.0)
    return await _on(
        engines(short_0=FAST, short_1=FAST, long_0=FAST), lambda f: loss(f, away, rate)
    )


async def _quota(quick: bool) -> dict[str, Any]:
    requests, limit = (1000, 500) if quick else (10_000, 5000)
    return await _on(
        engines(short_0=FAST, short_1=FAST, long_0=FAST), lambda f: quota(f, requests, limit)
    )


def slots_setup(limit: int, engine: Sequence[str]) -> Setup:
    """One backend with a limit."""
    return Setup(
        {"only": engine}, {"backends": {"only": {"limit": limit}}, "warm": {"requests": 2}}
    )


async def _slots(quick: bool) -> dict[str, Any]:
    setup, seconds = slots_setup(LIMIT, SLOW_STEPS), 4.5 if quick else 10.0
    return await _on(setup, lambda f: slots(f, "only", LIMIT, seconds))


async def _canary(quick: bool) -> dict[str, Any]:
    """Prompts of some 240 tokens: 24 ms of prefill at 100 µs, twice as much at 200. At 16 a second
    neither engine is busy for more than half of the time, whatever its share."""
    slow, fast = ("--prefill-us", "200", *UNCACHED), ("--prefill-us", "100", *UNCACHED)
    found = {}
    for name, new in (("slower", slow), ("equal", fast)):
        setup = engines(short_0=fast, short_1=new, long_0=FAST)
        found[name] = await _on(setup, lambda f: canary(f, 90.0 if quick else 180.0, 16.0))
    return found


async def _on(setup: Setup, measure: Callable[[Fleet], Work]) -> dict[str, Any]:
    async with fleet(setup) as running:
        return await measure(running)


_PARTS: dict[Part, Callable[[bool], Work]] = {
    Part.CHANGES: _changes,
    Part.LOSS: _loss,
    Part.QUOTA: _quota,
    Part.SLOTS: _slots,
    Part.CANARY: _canary,
}
