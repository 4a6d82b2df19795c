"""A search that is killed while it measures: `python -m tests.bench.tuning.killed FILE WINDOWS`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bench.tuning.objective import Window
from bench.tuning.space import Flags
from tests.bench.tuning.landscape import Landscape, response, window
from tests.bench.tuning.test_search import BRIEF, search


def main() -> None:
    left = int(sys.argv[2])

    def fatal(flags: Flags | None, _: int) -> Window:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return window(response(flags))

    asyncio.run(search(Landscape(fatal), BRIEF, Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
