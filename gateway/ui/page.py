"""What the live page shows, kept up to date: once a second, and at once when something happens."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic
from typing import Any

from gateway import __version__
from gateway.metrics import TTFT_BUCKETS
from gateway.ui import counts
from gateway.ui.broadcast import Broadcast
from gateway.ui.counts import Counts
from gateway.ui.document import Sources, now
from gateway.ui.news import Item, News
from gateway.ui.settings import SettingsView
from gateway.ui.timeline import Second, Timeline

INTERVAL = 1.0
WINDOW = 60
"""Readings, a second apart, over which rates, quantiles and stages are told."""


class Page:
    """The model behind the page; `broadcast` has those who look at it."""

    def __init__(self, sources: Sources, news: News, settings: SettingsView) -> None:
        self.broadcast = Broadcast()
        self._sources = sources
        self._news = news
        self._settings = settings
        self._started = time.time()
        self._timeline = Timeline()
        self._readings: deque[tuple[float, dict[str, Counts]]] = deque(maxlen=WINDOW + 1)
        self._readings.append((monotonic(), counts.read(sources.rows)))
        self._soon: asyncio.Handle | None = None
        news.heard = self._heard

    async def follow(self) -> None:
        """Read and tell once a second, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self._readings.append((monotonic(), counts.read(self._sources.rows)))
            state = now(self._sources, self._minute())
            self._timeline.add(_second(state))
            self.broadcast.send("second", state)

    async def follow_settings(self) -> None:
        """The same for the settings, whose history takes a question to Redis."""
        while True:
            if await self._settings.refresh():
                self.broadcast.send("settings", self._settings.document())
            await asyncio.sleep(INTERVAL)

    def hello(self) -> dict[str, Any]:
        """All that a newly opened page needs."""
        return {
            "release": __version__,
            "started": self._started,
            "now": now(self._sources, self._minute()),
            "history": self._timeline.document(),
            "news": [_item(item) for item in self._news.items()],
            "settings": self._settings.document(),
        }

    def _minute(self) -> dict[str, Mapping[str, Any]]:
        began, before = self._readings[0]
        ended, after = self._readings[-1]
        return {
            name: counts.document(
                counts.since(total, before.get(name, Counts())), ended - began, TTFT_BUCKETS
            )
            for name, total in after.items()
        }

    def _heard(self, item: Item) -> None:
        """Tell of it now, and of the state that it led to once everybody has reacted to it."""
        self.broadcast.send("news", _item(item))
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._soon = None
        self.broadcast.send("now", now(self._sources, self._minute()))


def _item(item: Item) -> dict[str, Any]:
    return asdict(item) | {"kind": item.kind.value}


def _second(state: Mapping[str, Any]) -> Second:
    return Second(
        state["time"],
        {
            c["name"]: (
                c["queued"],
                c["in_flight"],
                c["limit_effective"],
                c["limit_configured"],
                c["p95"],
            )
            for c in state["classes"]
        },
    )
