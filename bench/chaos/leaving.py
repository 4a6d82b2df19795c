"""Clients that leave, in each phase of a request, and how soon the engine has nothing left of them.

queued       all slots are held by others; the request waits at the gateway
connecting   the client leaves within milliseconds, while the gateway prepares and connects
prefill      the engine runs it, and no byte of the answer has come
decode       the answer streams

The engine's own counts of running and waiting requests are the judge.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import monotonic
from urllib.parse import urlsplit

import aiohttp
import orjson

from backends.plans.model import Flag, Plan
from bench.demo import free_port
from bench.idle.measure import Idle
from bench.scenarios import Report
from bench.stack import running

PHASES = ("queued", "connecting", "prefill", "decode")
TOGETHER = 8
"""Clients of one batch; the gateway's limit must be the same, so that they fill it."""
REACHES_WITHIN = 60.0
_COUNT = re.compile(rb"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", re.MULTILINE)
_QUEUED = re.compile(rb"^forebay_queued_requests\{[^}]*\} (\S+)$", re.MULTILINE)
_ENDLESS = 6000


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is tried. `long` is a prompt's length in words that makes a prefill visible."""

    gateway: str
    engine: str
    model: str
    long: int = 1500


@dataclass(frozen=True, slots=True)
class Left:
    """What came of one phase. `worst` is the longest that the engine had something left, in
    seconds; `missed` are clients that were past their phase before they could leave."""

    phase: str
    times: int
    missed: int
    worst: float


async def leave(place: Place, phase: str, times: int, rng: Random) -> Left:
    """Let clients leave so many times. Raises TimeoutError when a phase is never reached or the
    engine never gets rid of a request."""
    worst, missed, done = 0.0, 0, 0
    async with aiohttp.ClientSession() as http:
        around = _Counts(place, http)
        async with _holders(place, TOGETHER if phase == "queued" else 0, around) as held:
            while done < times:
                clients = [_Client(place, phase, rng) for _ in range(min(TOGETHER, times - done))]
                await asyncio.gather(*(client.ask() for client in clients))
                await _reach(phase, clients, around)
                missed += sum(client.is_past(phase) for client in clients)
                for client in clients:
                    client.leave()
                worst = max(worst, await around.until_engine_has(held))
                done += len(clients)
        await around.until_engine_has(0)
    return Left(phase, done, missed, worst)


async def _reach(phase: str, clients: "list[_Client]", around: "_Counts") -> None:
    match phase:
        case "queued":
            await _until(around.queued, lambda count: count >= len(clients))
        case "connecting":
            await asyncio.sleep(clients[0].moment)
        case "prefill":
            await _until(around.engine, lambda count: count >= 1)
        case "decode":
            await asyncio.gather(*(client.first_token() for client in clients))


async def _until(count: Callable[[], Awaitable[int]], enough: Callable[[int], bool]) -> None:
    async with asyncio.timeout(REACHES_WITHIN):
        while not enough(await count()):  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.002)


class _Counts:
    """What gateway and engine say that they have."""

    def __init__(self, place: Place, http: aiohttp.ClientSession) -> None:
        self._place = place
        self._http = http

    async def engine(self) -> int:
        return await self._sum(self._place.engine, _COUNT)

    async def queued(self) -> int:
        return await self._sum(self._place.gateway, _QUEUED)

    async def until_engine_has(self, wanted: int) -> float:
        """How long it took until the engine has exactly so many."""
        began = monotonic()
        async with asyncio.timeout(REACHES_WITHIN):
            while await self.engine() != wanted:  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.01)
        return monotonic() - began

    async def _sum(self, url: str, pattern: re.Pattern[bytes]) -> int:
        async with self._http.get(f"{url}/metrics") as answer:
            page = await answer.read()
        return int(sum(float(value) for value in pattern.findall(page)))


class _Client:
    """One connection with one streamed request on it."""

    def __init__(self, place: Place, phase: str, rng: Random) -> None:
        self.moment = rng.uniform(0.0, 0.01)
        self._place = place
        words = place.long if phase == "prefill" else 5
        # Another beginning each time: a cached prefix would have no prefill to leave in.
        text = f"{rng.getrandbits(64):x} " + "water " * words
        body = orjson.dumps(
            {
                "model": place.model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": _ENDLESS,
                "ignore_eos": True,
                "stream": True,
            }
        )
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._seen = b""

    async def ask(self) -> None:
        address = urlsplit(self._place.gateway)
        self._reader, self._writer = await asyncio.open_connection(address.hostname, address.port)
        self._writer.write(self._request)
        await self._writer.drain()

    async def first_token(self) -> None:
        async with asyncio.timeout(REACHES_WITHIN):
            while self._seen.count(b"data: ") < 2:
                piece = await self.read()
                if not piece:
                    raise ConnectionError(f"the gateway ended the answer: {self._seen[:300]!r}")
                self._seen += piece

    async def read(self) -> bytes:
        return await self._reader.read(65_536)

    def is_past(self, phase: str) -> bool:
        """Whether the answer began before the client could leave."""
        began = bool(self._seen) or bool(self._reader._buffer)  # type: ignore[attr-defined]
        return phase != "decode" and began

    def leave(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def _holders(place: Place, count: int, around: _Counts) -> AsyncIterator[int]:
    """So many requests that stream on and on, for as long as the block lasts."""
    holders = [_Client(place, "decode", Random(number)) for number in range(count)]
    await asyncio.gather(*(holder.ask() for holder in holders))
    await asyncio.gather(*(holder.first_token() for holder in holders))
    reading = [asyncio.get_running_loop().create_task(_drain(holder)) for holder in holders]
    try:
        yield count
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for holder in holders:
            holder.leave()


async def _drain(holder: _Client) -> None:
    """A holder that read nothing would be cut for stalling. One that ends is an error of ours."""
    while await holder.read():
        pass


async def measure_leaving(idle: Idle, times: int, folder: Path) -> Report:
    """All four phases on one engine and gateway. Raises NotReady, ChildEnded and TimeoutError."""
    limit = Flag("max-num-seqs", TOGETHER, "")
    engine = replace(idle.engine, port=free_port(), flags=(*idle.engine.flags, limit))
    summary: dict[str, float] = {}
    given = () if idle.given is None else (replace(idle.given, limit=TOGETHER),)
    plan, within = Plan(() if given else (engine,)), idle.ready_within
    async with running(
        folder, plan, idle.managed, {"workers": 1}, ready_within=within, given=given
    ) as stack:
        (spec,) = stack.backends
        place = Place(stack.url, spec.url, idle.model)
        for phase in PHASES:
            left = await leave(place, phase, times, Random(phase))
            summary[f"{phase}_left"] = left.times
            summary[f"{phase}_worst_s"] = round(left.worst, 3)
            summary[f"{phase}_missed"] = left.missed
        summary["in_flight_end"] = await stack.metric("forebay_in_flight_requests")
    return Report(summary)
