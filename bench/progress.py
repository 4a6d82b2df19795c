"""What progress lines share: they are shown within a `with` block. What they say is their own."""

from types import TracebackType
from typing import Self

from rich.progress import Progress


class Shown:
    """Shows `progress` for the block."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
