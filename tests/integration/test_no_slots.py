"""A backend whose slots are all in other gateways' hands is waited for, on a real Redis."""

import asyncio
import time
from pathlib import Path

from tests.integration.parts import MODEL, running_engine, running_gateway
from tests.redis_server import redis_server, url_of

LEASE = "forebay.lease:backend:short"


async def test_a_short_prompt_waits_for_a_share_of_its_own_pool(
    tmp_path: Path, cache_dir: Path
) -> None:
    with redis_server(tmp_path) as redis:
        # Somebody else holds all eight slots of `short`, and is heard of for an hour.
        redis.hset(LEASE, "another", f"8 8 {int((time.time() + 3600) * 1000)}")
        async with asyncio.timeout(60), running_engine() as short, running_engine() as long:
            backends = {
                "short": {"url": short.url, "classes": ["short"], "limit": 8},
                "long": {"url": long.url, "classes": ["long"]},
            }
            settings = {"backends": backends, "redis": url_of(redis)}
            async with running_gateway(cache_dir, **settings) as gateway:
                steering = gateway.app.brain.steering
                await gateway.until(lambda: steering.sharing.up)
                assert steering.share_of("short") == 0
                async with gateway.client() as client:
                    asking = gateway.app.tasks.spawn(
                        "asking",
                        client.chat.completions.with_raw_response.create(
                            model=MODEL, messages=[{"role": "user", "content": "Hello"}]
                        ),
                    )
                    await gateway.until(
                        lambda: any(p.queued for p in gateway.app.driver.snapshot().pools)
                    )
                    redis.hdel(LEASE, "another")
                    answer = await asking
                assert answer.headers["x-forebay-backend"] == "short"
