"""Server processes of these tests: started in a group of their own, watched, and ended for sure."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_TAIL = 4000


class Server:
    """One HTTP server on 127.0.0.1, with its output in a file.

    vLLM is four processes, and one of them has been seen to outlive SIGTERM by an hour: so the
    whole group is ended, politely first and by force after the grace.
    """

    def __init__(
        self, command: Sequence[str], port: int, *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._ended = False
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until_ready(self, path: str, within: float) -> None:
        """Return when the path answers 200. Raises with the log's end when it does not."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"exited with {self._process.returncode}:\n{self.log_tail()}")
            if self._answers(path):
                return
            time.sleep(0.1)
        raise TimeoutError(f"{self.url}{path} not ready in {within:.0f} s:\n{self.log_tail()}")

    def stop(self, grace: float = 15.0) -> int:
        """End the group, once; the exit status of its first process (-9: it had to be killed)."""
        if not self._ended:
            self._ended = True
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
            self._signal(signal.SIGKILL)
        return self._process.wait()

    def log_tail(self) -> str:
        return self.log.read_bytes()[-_TAIL:].decode(errors="replace")

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
