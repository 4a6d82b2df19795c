"""`python -m backends.managed.leash GRACE COMMAND…`: an engine lives as long as its owner does.

A supervisor that is killed cannot end its engines, and they would keep their GPUs and ports. So
each engine is started through this small process, which leads its group and whose standard input
is a pipe that only the supervisor holds: when that is closed, the engine is told to end, and the
group is killed after the grace. Standard library only: one of these runs beside each engine.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

CANNOT_START = 127


def main() -> None:
    grace, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT):
        # They are for the engine. Handled, not ignored: what is ignored stays so in children.
        signal.signal(number, lambda *_: None)
    try:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the plan's
    except OSError as error:
        print(f"cannot start: {error}", flush=True)  # noqa: T201 - our supervisor reads it
        sys.exit(CANNOT_START)
    threading.Thread(target=_leave_with, args=(engine,), daemon=True).start()
    while os.read(sys.stdin.fileno(), 1024):
        pass
    engine.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(grace)
    os.killpg(0, signal.SIGKILL)


def _leave_with(engine: "subprocess.Popen[bytes]") -> None:
    """End with the engine, and as a shell would tell its status."""
    status = engine.wait()
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
