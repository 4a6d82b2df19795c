"""What Forebay is for: the first token of a real vLLM comes sooner through it."""

import aiohttp

from bench.ttft.chats import Size
from bench.ttft.measure import alternate, ask, sides_of
from bench.ttft.report import cell
from bench.ttft.setups import Pair
from tests.real_vllm.servers import Server

# By hand 0.6 to 0.7; without the hand-over of ids it is over 1.
SOONER = 0.9
# With 12 processes waiting for the two cores one of them was 0.93.
TRIES = 3


async def test_long_cached_chat_gets_its_first_token_sooner(vllm: Server, gateway: Server) -> None:
    pair = Pair(vllm.url, gateway.url, "tiny")
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        sides = await sides_of(http, pair, Size("7k", 7_000, 20))
        for side in sides.values():
            await ask(http, side)
        ratios: list[float] = []
        for _ in range(TRIES):
            figures = cell(await alternate(http, sides, concurrency=1))
            assert figures["channels"] == ["ids"]
            ratios.append(figures["ratio"])
            if ratios[-1] < SOONER:
                break
    assert ratios[-1] < SOONER, ratios
