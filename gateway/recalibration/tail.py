"""The lines that are added to the request log while it is followed.

A log that is rotated meanwhile, to another name with a new one in its place, is read on in the new
one: a file that is shorter than what was read of it begins anew.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.report.lines import Line, parse


class Tail:
    """Begins at the present end of each file."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._read = {path: _size(path) for path in paths}

    def lines(self) -> Iterator[Line]:
        """What came since the last time. A line without its end waits for it."""
        for path, read in self._read.items():
            begin = read if _size(path) >= read else 0
            with path.open("rb") as file:
                file.seek(begin)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read[path] = begin + len(whole) + len(end)
            for text in whole.splitlines():
                if (line := parse(text)) is not None:
                    yield line


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
