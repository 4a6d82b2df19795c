"""Requests to the gateways, and what became of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from bench.control.fleet import Fleet
from bench.demo import MODEL

PATH = "/v1/chat/completions"
LIMIT = aiohttp.ClientTimeout(total=60)


@dataclass(slots=True)
class Tally:
    """Statuses by count (0: no answer), and when each 200 came."""

    statuses: Counter[int] = field(default_factory=Counter)
    accepted_at: list[float] = field(default_factory=list)

    def add(self, status: int, at: float) -> None:
        self.statuses[status] += 1
        if status == 200:
            self.accepted_at.append(at)

    @property
    def failed(self) -> int:
        """What did not get a whole answer."""
        return self.statuses.total() - self.statuses[200]


async def ask(
    fleet: Fleet, number: int, *, headers: Mapping[str, str] | None = None, **fields: Any
) -> int:
    """One request to the gateway whose turn it is; the status, 0 for a lost connection."""
    url = fleet.urls[number % len(fleet.urls)] + PATH
    content = f"{number}: {fields.pop('content', 'tell me of the water')}"
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 1,
    } | fields
    try:
        async with fleet.http.post(url, json=body, headers=headers, timeout=LIMIT) as answer:
            text = await answer.read()
            broken = fields.get("stream") and not text.endswith(b"data: [DONE]\n\n")
            return 0 if answer.status == 200 and broken else answer.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


class Load:
    """Steady requests in the background, each gateway in its turn, until told to stop."""

    def __init__(self, fleet: Fleet, rate: float, **fields: Any) -> None:
        self._fleet = fleet
        self._gap = 1.0 / rate
        self._fields = fields
        self._asking: set[asyncio.Task[None]] = set()
        self._group = asyncio.TaskGroup()
        self._stop = asyncio.Event()
        self.tally = Tally()

    async def __aenter__(self) -> "Load":
        await self._group.__aenter__()
        self._group.create_task(self._run())
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._stop.set()
        await self._group.__aexit__(*error)

    async def _run(self) -> None:
        number, at = 0, time.monotonic()
        while not self._stop.is_set():
            self._group.create_task(self._one(number))
            number += 1
            at += self._gap
            await asyncio.sleep(max(0.0, at - time.monotonic()))

    async def _one(self, number: int) -> None:
        status = await ask(self._fleet, number, **self._fields)
        self.tally.add(status, time.monotonic())
