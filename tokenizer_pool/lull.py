"""When nobody has used the event loop for a while: the time for what would hold it up.

Loading a tokenizer of 150,000 tokens into a process holds the interpreter for 150 ms and freeing it
for 40, in threads too: the library parses and frees with the interpreter locked.
"""

import asyncio
from time import monotonic


class Lull:
    """`used()` marks that somebody wants the loop; a lull begins `seconds` after the last mark."""

    __slots__ = ("_seconds", "_used_at")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._used_at = -seconds

    def used(self) -> None:
        self._used_at = monotonic()

    @property
    def now(self) -> bool:
        return self._left() <= 0

    async def wait(self) -> None:
        """Return in the next lull."""
        while (left := self._left()) > 0:  # noqa: ASYNC110 - each use moves the end
            await asyncio.sleep(left)

    def _left(self) -> float:
        return self._used_at + self._seconds - monotonic()
