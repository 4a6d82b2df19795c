"""A gateway whose class boundary follows the traffic, until an operator says what it is."""

import asyncio
from pathlib import Path

from scheduler.events import Finished
from scheduler.model import Ticket
from tests.integration.parts import MODEL, Gateway, running_engine, running_gateway
from tests.redis_server import redis_server, url_of

TUNING = {"enabled": True, "interval": 0.05, "dwell": 0.05, "samples": 100}
KEY = "forebay:class:short"


def passages(gateway: Gateway) -> None:
    """Tickets as they come from requests whose prompts are longer than a short one may be."""
    door = gateway.app.brain.door
    for number in range(1000):
        tokens = 1040 if number % 5 else 8000
        door.submit(Ticket(f"t{number}", MODEL, tokens), lambda _: None)
        door.report(Finished(f"t{number}"))


async def test_a_boundary_follows_the_traffic_until_an_operator_sets_it(
    tmp_path: Path, cache_dir: Path
) -> None:
    with redis_server(tmp_path) as redis:
        async with asyncio.timeout(60), running_engine() as engine:
            settings = {
                "backends": {"only": {"url": engine.url}},
                "redis": url_of(redis),
                "tuning": TUNING,
            }
            async with running_gateway(cache_dir, **settings) as gateway:
                steering = gateway.app.brain.steering

                def bound() -> int | None:
                    return steering.in_force.classes["short"].max_prompt_tokens

                await gateway.until(lambda: gateway.app.control.up is True)
                passages(gateway)
                await gateway.until(lambda: (bound() or 0) > 1040)
                setting = "class:short.max_prompt_tokens"
                assert await gateway.metric("forebay_adapted_setting", setting=setting) == bound()
                assert await gateway.metric("forebay_tuning_decisions_total", what="class") >= 1
                assert setting in (await gateway.ready())["steering"]["adapted"]

                redis.hset(KEY, "max_prompt_tokens", "900")
                await gateway.until(lambda: bound() == 900)
                passages(gateway)
                assert steering.adaptation.look(steering.control.effective, 1e9) is False
                assert bound() == 900
                redis.hdel(KEY, "max_prompt_tokens")
                await gateway.until(lambda: bound() != 900)
                await gateway.until(lambda: (bound() or 0) > 1040)
