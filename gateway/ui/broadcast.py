"""Server-sent events to every open page. A page that does not read is cut off; it comes back."""

import asyncio
from typing import Any

import orjson

MOST = 32
"""Pages that may be open at once."""
UNREAD = 64
"""Events that may wait for one page."""


class TooManyPages(Exception):
    """No further page may be opened now."""


def event(name: str, data: Any) -> bytes:
    """One event as it travels."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


class Subscription:
    """One open page: what it is still to read. `None` ends it."""

    def __init__(self) -> None:
        self._unread: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD + 1)

    async def next(self) -> bytes | None:
        return await self._unread.get()

    def put(self, data: bytes) -> bool:
        """False when too much waits already."""
        if self._unread.qsize() >= UNREAD:
            return False
        self._unread.put_nowait(data)
        return True

    def end(self) -> None:
        self._unread.put_nowait(None)


class Broadcast:
    """The open pages."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> Subscription:
        """One more page. Raises TooManyPages."""
        if self._closed or len(self._open) >= MOST:
            raise TooManyPages
        page = Subscription()
        self._open.add(page)
        return page

    def leave(self, page: Subscription) -> None:
        self._open.discard(page)

    def send(self, name: str, data: Any) -> None:
        """To every page; rendered once, and not at all when nobody looks."""
        if not self._open:
            return
        rendered = event(name, data)
        for page in list(self._open):
            if not page.put(rendered):
                self._end(page)

    def close(self) -> None:
        """End every page's stream; none may be opened any more."""
        self._closed = True
        for page in list(self._open):
            self._end(page)

    def _end(self, page: Subscription) -> None:
        self._open.discard(page)
        page.end()
