"""Sending the same chat to several sides in turn, and stamping each first token.

Not here: what the figures mean (bench/ttft/report.py).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

from bench.load.answer import stages
from bench.sse import DONE
from bench.ttft.chats import Document, Size, as_ids, sized
from bench.ttft.setups import Pair, TtftFailed

PER_WORKER = 2
"""Requests that each of the concurrent clients sends in one wave, one after the other."""

_HEADERS = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Side:
    """Whom to ask, and the body, ready to send: making it must not count."""

    url: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """One request. `ttft` is in seconds; `channel` and `stages` (seconds) as Forebay tells them."""

    ttft: float
    channel: str = ""
    stages: tuple[tuple[str, float], ...] = ()


Waves = list[list[Reading]]


def rounds(concurrency: int) -> int:
    """How often each side gets a wave: some hundred requests, fewer where one client waits."""
    return min(15, max(4, 64 // concurrency))


async def sides_of(http: aiohttp.ClientSession, pair: Pair, size: Size) -> dict[str, Side]:
    """`direct` and `forebay` get the text; `ids` is vLLM spared the template and the encoding."""

    async def tokenize(document: Document) -> list[int]:
        asked = {name: document[name] for name in ("model", "messages", "tools")}
        async with http.post(f"{pair.direct}/tokenize", json=asked) as response:
            if response.status != 200:
                raise TtftFailed(f"/tokenize answered {response.status}: {await response.text()}")
            tokens: list[int] = (await response.json())["tokens"]
            return tokens

    async def count(document: Document) -> int:
        return len(await tokenize(document))

    document = await sized(size, pair.model, count)
    text = orjson.dumps(document)
    ids = orjson.dumps(as_ids(document, await tokenize(document)))
    return {
        "direct": Side(pair.direct, text),
        "forebay": Side(pair.forebay, text),
        "ids": Side(pair.direct, ids),
    }


async def ask(http: aiohttp.ClientSession, side: Side) -> Reading:
    """Send one chat and read its answer to the end.

    The first event counts: vLLM writes it when the engine's first output arrives. Raises
    TtftFailed for anything but a whole answer, aiohttp.ClientError when there is none.
    """
    sent = time.perf_counter()
    url = f"{side.url}/v1/chat/completions"
    async with http.post(url, data=side.body, headers=_HEADERS) as response:
        first = await response.content.readline()
        ttft = time.perf_counter() - sent
        rest = await response.read()
    if response.status != 200 or DONE not in rest:
        raise TtftFailed(f"{url} answered {response.status}: {(first + rest)[:500]!r}")
    told = response.headers
    return Reading(ttft, told.get("x-forebay-channel", ""), stages(told.get("server-timing", "")))


async def wave(http: aiohttp.ClientSession, side: Side, concurrency: int) -> list[Reading]:
    """A closed loop of so many clients, `PER_WORKER` requests each. Raises as `ask`."""

    async def worker() -> list[Reading]:
        return [await ask(http, side) for _ in range(PER_WORKER)]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker()) for _ in range(concurrency)]
    except ExceptionGroup as failures:
        # The first stopped the others: it alone is worth telling.
        raise failures.exceptions[0] from None
    return [reading for task in tasks for reading in task.result()]


async def alternate(
    http: aiohttp.ClientSession, sides: Mapping[str, Side], concurrency: int
) -> dict[str, Waves]:
    """Waves to all sides in turn; each round begins with another side, for equal neighbours."""
    found: dict[str, Waves] = {name: [] for name in sides}
    for order in orders(list(sides), rounds(concurrency)):
        for name in order:
            found[name].append(await wave(http, sides[name], concurrency))
    return found


def orders(names: Sequence[str], count: int) -> list[list[str]]:
    """`count` orders of the names, each turned on by one."""
    turns = [number % len(names) for number in range(count)]
    return [[*names[turn:], *names[:turn]] for turn in turns]
