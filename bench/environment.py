"""Where and by what a measurement was made: command, versions, cores, revision.

Part of every result file.
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("forebay", "aiohttp", "fastokens", "httptools", "orjson", "tokenizers", "uvloop")

UNTOLD = ("--json", "--api-key")
"""Options of which a result does not tell."""


def environment() -> dict[str, object]:
    """JSON-ready facts. `revision` is empty outside a git checkout."""
    return {
        "command": command(sys.argv),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "revision": _git("describe", "--always", "--dirty"),
    }


def command(words: Sequence[str]) -> str:
    """What was typed (`sys.argv`), less where its result went, and less secrets."""
    program = Path(words[0])
    told = (
        ["python", "-m", program.parent.name] if program.name == "__main__.py" else [program.name]
    )
    arguments = iter(words[1:])
    for word in arguments:
        option, _, value = word.partition("=")
        if option not in UNTOLD:
            told.append(word)
        elif not value:
            next(arguments, None)
    return shlex.join(told)


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
