"""`python -m tests.api.fuzz --inputs 100000`: a gateway in this process, fed with made-up input.

What must hold: no 500 of the gateway's own, every complete request answered in time, and at the
end nothing left over: no request in flight, no task, no descriptor. Exits with 1 otherwise.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httptools

from tests.api.inputs import Connection, connection
from tests.integration.parts import Gateway, running_engine, running_gateway

CLIENTS = 24
WITHIN = 20.0
"""Seconds in which a complete request must be answered."""

SPARE = 16
"""Descriptors that the pool of connections to the engine may hold on to."""

FAST = ("--step-ms", "0.1", "--prefill-us", "1", "--decode-us", "1", "--max-model-len", "8192")


@dataclass
class Report:
    """What was sent, what came back, and what should not have."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lines(self, seconds: float) -> list[str]:
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self.kinds.items()))
        statuses = ", ".join(f"{status}: {n}" for status, n in sorted(self.statuses.items()))
        return [
            f"{self.inputs} inputs in {seconds:.0f} s ({self.inputs / seconds:.0f}/s)",
            f"inputs    {kinds}",
            f"statuses  {statuses}",
            *(f"WRONG     {what}" for what in self.wrong[:20]),
            f"{len(self.wrong)} violations",
        ]


class Answers:
    """The answers on one connection, as httptools reads them."""

    def __init__(self) -> None:
        self.done: list[tuple[int, bytes]] = []
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.done.append((status, self._body))
        self._body = b""


async def send(port: int, what: Connection) -> tuple[list[tuple[int, bytes]], bool]:
    """The answers, and whether they came in time (as far as any were due)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = Answers()
    try:
        for piece in what.pieces:
            writer.write(piece)
            if len(what.pieces) > 1:
                await asyncio.sleep(0)  # its own segment
        if what.then == "close":
            return [], True
        if what.then == "half":
            writer.write_eof()
        async with asyncio.timeout(WITHIN):
            while data := await reader.read(1 << 16):
                answers.feed(data)
                if 0 < what.answers <= len(answers.done):
                    break
    except TimeoutError:
        return answers.done, False
    except (ConnectionError, httptools.HttpParserError):
        pass  # cut by the gateway, as it may do to what is not HTTP
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return answers.done, True


def is_ours(status: int, body: bytes) -> bool:
    """A 500 that the gateway made, and not the engine."""
    if status != 500:
        return False
    with suppress(ValueError):
        error = json.loads(body)["error"]
        return error.get("code") in ("internal_error", "tokenizer_failed") or "api_error" in str(
            error.get("type")
        )
    return False


async def fuzz(gateway: Gateway, inputs: int, seed: int) -> Report:
    """Send so many inputs, and look at what is left at the end."""
    report = Report()
    before = len(os.listdir("/proc/self/fd"))
    numbers = iter(range(inputs))

    async def client() -> None:
        for number in numbers:
            what = connection(random.Random(f"{seed}-{number}"))
            answered, in_time = await send(gateway.port, what)
            report.inputs += 1
            report.kinds[what.kind] += 1
            for status, body in answered:
                report.statuses[status] += 1
                if is_ours(status, body):
                    report.wrong.append(f"input {number} ({what.kind}): {body[:200]!r}")
            if not in_time:
                report.wrong.append(f"input {number} ({what.kind}): no answer in {WITHIN} s")

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    await _settled(gateway, before, report)
    return report


async def _settled(gateway: Gateway, before: int, report: Report) -> None:
    """Nothing may be left over, a while after the last client went."""
    try:
        await gateway.until(lambda: gateway.in_flight() == 0)
        await gateway.until(lambda: not gateway.app.server.connections)
        await gateway.until(lambda: len(os.listdir("/proc/self/fd")) <= before + SPARE)
    except TimeoutError:
        left = (gateway.in_flight(), len(gateway.app.server.connections))
        descriptors = len(os.listdir("/proc/self/fd")) - before
        report.wrong.append(f"left over: in flight, connections {left}, descriptors {descriptors}")
    if gateway.app.tasks.failed:
        report.wrong.append(f"{gateway.app.tasks.failed} tasks failed")
    if report.statuses[200] == 0:
        report.wrong.append("no input was answered with 200: this tested nothing")


async def run(inputs: int, seed: int) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="forebay-fuzz-") as folder:
        cache = Path(os.environ.get("FOREBAY_CACHE", folder))
        async with (
            running_engine(*FAST) as engine,
            running_gateway(cache, backends={"only": {"url": engine.url}}) as gateway,
        ):
            report = await fuzz(gateway, inputs, seed)
    print("\n".join(report.lines(time.monotonic() - began)))
    return 1 if report.wrong else 0


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m tests.api.fuzz", description=__doc__)
    flags.add_argument("--inputs", type=int, default=100_000)
    flags.add_argument("--seed", type=int, default=1)
    args = flags.parse_args()
    sys.exit(asyncio.run(run(args.inputs, args.seed)))


if __name__ == "__main__":
    main()
