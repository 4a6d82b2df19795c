"""When nobody has used the event loop for a while: the time for what would hold it up.

Loading a tokenizer of 150,000 tokens into a process holds the interpreter for 150 ms and freeing it
for 40, in threads too: the library parses and frees with the interpreter locked.
"""

import asyncio
from time import monotonic


class Lull:
    """`used()` marks that somebody wants the loop; a lull begins `seconds` after the last mark.

    Who waits is content with less the longer it waits, and after `patience` seconds with none: a
    service that is never idle still gets its tokenizer loaded.
    """

    __slots__ = ("_patience", "_seconds", "_used_at")

    def __init__(self, seconds: float, patience: float) -> None:
        self._seconds = seconds
        self._patience = patience
        self._used_at = -seconds

    def used(self) -> None:
        self._used_at = monotonic()

    @property
    def now(self) -> bool:
        return self._left(0.0) <= 0

    async def wait(self) -> None:
        """Return in the next lull, after `patience` seconds at the latest."""
        began = monotonic()
        while (left := self._left(monotonic() - began)) > 0:  # noqa: ASYNC110 - uses move the end
            await asyncio.sleep(left)

    def _left(self, waited: float) -> float:
        """Seconds until there has been a lull for who has waited so long, if nobody comes."""
        share = self._seconds / self._patience
        enough = self._seconds - share * waited
        return (self._used_at + enough - monotonic()) / (1.0 + share)
