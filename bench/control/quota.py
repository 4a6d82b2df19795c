"""One tenant's requests per minute, through three gateways, unevenly, as fast as it goes."""

import asyncio
import hashlib
import time
from typing import Any

from bench.control.client import Tally, ask
from bench.control.fleet import Fleet

SECRET = "bench-secret-that-guards-nothing"
AT_ONCE = 24
WINDOW = 60.0
SPREAD = (0, 0, 0, 1, 1, 2)
"""Which gateway each request goes to, in turns: half of them to the first."""


async def quota(fleet: Fleet, requests: int, limit: int) -> dict[str, Any]:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    await fleet.redis.hset("forebay:tenant:acme", "requests_per_minute", str(limit))
    await fleet.redis.hset("forebay:key:bench", mapping={"tenant": "acme", "sha256": digest})
    headers = {"authorization": f"Bearer {SECRET}"}
    await _until_known(fleet)
    tally, numbers = Tally(), iter(range(requests))

    async def client() -> None:
        for number in numbers:
            gateway = SPREAD[number % len(SPREAD)]
            status = await ask(fleet, gateway, headers=headers, content="Hello")
            tally.add(status, time.monotonic())

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(client())
    took = time.monotonic() - began
    await fleet.redis.delete("forebay:key:bench", "forebay:tenant:acme")
    accepted = tally.accepted_at
    most = max(
        (sum(at <= t < at + WINDOW for t in accepted) for at in accepted[:: max(1, limit // 50)]),
        default=0,
    )
    return {
        "requests": requests,
        "limit_per_minute": limit,
        "took_s": round(took, 1),
        "accepted": len(accepted),
        "accepted_in_any_minute": most,
        "off_the_limit": round(most / limit - 1.0, 4),
        "statuses": {str(status): n for status, n in sorted(tally.statuses.items())},
    }


async def _until_known(fleet: Fleet) -> None:
    """Until every gateway asks for keys and has shared the tenant's quota with the others."""
    async with asyncio.timeout(20):
        for number in range(len(fleet.urls)):
            while await ask(fleet, number) != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    await asyncio.sleep(2.0)
