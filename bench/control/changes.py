"""How soon a change is in force at every gateway, and that a hundred wrong ones never are."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from bench.control.client import Load
from bench.control.fleet import Fleet
from bench.control.invalid import INVALID
from bench.figures import percentile

CHANGES = 100
KEY = "forebay:class:short"


async def effects(fleet: Fleet) -> dict[str, Any]:
    """A hundred changes of a limit, each timed from HSET until every gateway's scheduler has it."""
    took, versions = [], set()
    for number in range(CHANGES):
        limit = number % 50 + 1
        began = time.monotonic()
        await fleet.redis.hset(KEY, "limit", str(limit))
        await asyncio.gather(*(_until_limit(fleet, n, limit) for n in range(len(fleet.urls))))
        took.append(time.monotonic() - began)
        versions.add(await fleet.redis.hget("forebay:version", "number"))
    await fleet.redis.delete(KEY)
    took.sort()
    return {
        "changes": len(took),
        "versions": len(versions),
        "p50_ms": round(percentile(took, 0.5) * 1e3, 1),
        "p99_ms": round(percentile(took, 0.99) * 1e3, 1),
        "max_ms": round(took[-1] * 1e3, 1),
    }


async def refusals(fleet: Fleet) -> dict[str, Any]:
    """A hundred changes that cannot be, while requests run."""
    helpful = 0
    await asyncio.sleep(1.0)  # until what was changed before is a version
    before = await fleet.redis.hget("forebay:version", "number")
    async with Load(fleet, 20.0, max_tokens=2) as load:
        for key, fields, words in INVALID:
            if fields is None:
                await fleet.redis.set(key, "a string")
            else:
                await fleet.redis.hset(key, mapping=_typed(fields))
            helpful += await _refused(fleet, words)
            await fleet.redis.delete(key)
            await _nothing_refused(fleet)
    after = await fleet.redis.hget("forebay:version", "number")
    return {
        "invalid": len(INVALID),
        "refused_with_reason": helpful,
        "new_versions": int(after or 0) - int(before or 0),
        "requests": load.tally.statuses.total(),
        "failed_requests": load.tally.failed,
    }


async def _until_limit(fleet: Fleet, gateway: int, limit: int) -> None:
    async with asyncio.timeout(10):
        while True:
            pools = (await fleet.ready(gateway))["pools"]
            if pools["short"]["limit_configured"] == limit:
                return


async def _refused(fleet: Fleet, words: str) -> bool:
    """Whether every gateway says why, within two seconds."""
    until = time.monotonic() + 2.0
    for number in range(len(fleet.urls)):
        while words not in str((await fleet.ready(number))["rejected_settings"]):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.005)
    return True


async def _nothing_refused(fleet: Fleet) -> None:
    async with asyncio.timeout(10):
        for number in range(len(fleet.urls)):
            while (await fleet.ready(number))["rejected_settings"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def _typed(fields: Mapping[str, str]) -> dict[Any, Any]:
    """As redis-py's annotations want it."""
    return dict(fields)
