"""Redis is killed while requests run, stays away, and comes back empty."""

import asyncio
from typing import Any

from bench.control.client import Load
from bench.control.fleet import Fleet


async def loss(fleet: Fleet, away: float, rate: float) -> dict[str, Any]:
    """`away`: how long it stays away, in seconds; `rate`: requests per second meanwhile."""
    await fleet.redis.hset("forebay:class:short", "queue_limit", "777")
    await asyncio.sleep(1.0)
    async with Load(fleet, rate, stream=True, max_tokens=4) as load:
        await asyncio.sleep(2.0)
        fleet.redis_child.process.kill()
        await asyncio.sleep(away)
        noticed = [(await fleet.ready(n))["redis_up"] is False for n in range(len(fleet.urls))]
        await fleet.start_redis("redis-again")
        await asyncio.sleep(3.0)
    restored = await fleet.redis.hget("forebay:class:short", "queue_limit")
    await fleet.redis.delete("forebay:class:short")
    return {
        "redis_away_s": away,
        "requests": load.tally.statuses.total(),
        "failed_requests": load.tally.failed,
        "statuses": {str(status): n for status, n in sorted(load.tally.statuses.items())},
        "gateways_that_noticed": sum(noticed),
        "settings_restored": restored == "777",
    }
