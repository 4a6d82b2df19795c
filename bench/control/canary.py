"""Two groups of backends: the new one must go back by itself when it is slower, and get through
when it is equal."""

import asyncio
import time
from typing import Any

import orjson

from bench.control.client import Load
from bench.control.fleet import Fleet
from bench.demo import MODEL

OVER = ("promoted", "rolled_back", "aborted")
PROMPT = "the water and the wheel " * 30


async def canary(fleet: Fleet, within: float, rate: float) -> dict[str, Any]:
    """Run a canary from `short-0` to `short-1` under load; returns how it ended."""
    settings: dict[Any, Any] = {
        "old": "short-0",
        "new": "short-1",
        "steps": "0.3,0.5,1",
        "step_time": "3",
        "side_by_side": "8",
        "samples": "100",
        "run": f"{time.time():.0f}",
    }
    await fleet.redis.hset(f"forebay:canary:{MODEL}", mapping=settings)
    began = time.monotonic()
    state: dict[str, Any] = {}
    async with Load(fleet, rate, stream=True, max_tokens=1, content=PROMPT) as load:
        while time.monotonic() - began < within and state.get("phase") not in OVER:
            await asyncio.sleep(0.25)
            text = await fleet.redis.get(f"forebay.canary:{MODEL}")
            state = orjson.loads(text) if text else {}
    await fleet.redis.delete(f"forebay:canary:{MODEL}")
    return {
        "ended": state.get("phase"),
        "reason": state.get("reason"),
        "took_s": round(time.monotonic() - began, 1),
        "requests": load.tally.statuses.total(),
        "failed_requests": load.tally.failed,
    }
