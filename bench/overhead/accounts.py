"""The kernel's accounts of a process and all its descendants (proc(5)): CPU time and memory."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _USER, _SYSTEM, _RSS = 1, 11, 12, 21
"""Positions in /proc/PID/stat, counted from the field after the command's name."""


def tree(root: int) -> list[int]:
    """`root` and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of them all, to the kernel's tick (mostly 10 ms)."""
    stats = [fields for pid in pids if (fields := _fields(pid))]
    return sum(int(fields[_USER]) + int(fields[_SYSTEM]) for fields in stats) / _TICKS


def rss_bytes(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[_RSS]) * _PAGE if fields else 0


def _fields(pid: int) -> list[str]:
    """Empty when the process is gone. The name may hold anything, so its end is sought."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
