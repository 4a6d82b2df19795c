"""Where a measurement was made: versions, cores, revision. Part of every result file."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("forebay", "aiohttp", "fastokens", "httptools", "orjson", "tokenizers", "uvloop")


def environment() -> dict[str, object]:
    """JSON-ready facts. `revision` is empty outside a git checkout."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "revision": _git("describe", "--always", "--dirty"),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str:
    ended = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.strip()
