"""The live page put together: made, started and stopped by whoever has a brain."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.config import Config
from gateway.ui.document import Sources
from gateway.ui.listener import Listener
from gateway.ui.news import News
from gateway.ui.page import Page
from gateway.ui.settings import SettingsView

log = logging.getLogger("forebay.admin")

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]


class Admin:
    """Nothing at all where no admin port is configured, except that `news` is kept."""

    def __init__(self, config: Config, sources: Sources, news: News) -> None:
        self._settings = SettingsView(sources.control, config.redis)
        self._page = Page(sources, news, self._settings)
        self._listener = Listener(self._page)
        self._address = config.admin
        self.port: int | None = None

    async def start(self, spawn: Spawn) -> None:
        """Listen and begin to watch. Raises AdminTaken."""
        host, port = self._address.host, self._address.port
        if port is None:
            return
        self.port = await self._listener.listen(host, port)
        spawn("page", self._page.follow())
        spawn("page-settings", self._page.follow_settings())
        log.info("live page on http://%s:%d/ui", host, self.port)

    async def stop(self) -> None:
        if self.port is not None:
            await self._listener.stop()
            await self._settings.close()
