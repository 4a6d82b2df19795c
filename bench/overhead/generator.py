"""The client: a closed loop on bare asyncio protocols, one connection for each request in flight.

`python -m bench.overhead.generator` reads a `loads.Task` as JSON from its standard input and
writes a `loads.Result`. It ends with a message instead when a request fails: a figure of answers
that were no answers would be worse than none. Not here: open loops and real reports (bench/load).
"""

import asyncio
import gc
import itertools
import sys
from dataclasses import asdict, dataclass, field
from random import Random
from time import perf_counter, process_time
from typing import Any, cast

import httptools
import orjson
import uvloop

from bench.figures import percentile
from bench.overhead.accounts import cpu_seconds
from bench.overhead.loads import Load, Result, Task

WARM_UP = 0.25
"""The share of the time that is not measured, before the rest."""

_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b:%d\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)


class RequestFailed(Exception):
    """Something other than a whole answer with status 200 came."""


@dataclass(slots=True)
class Samples:
    """Seconds to the first byte of body, seconds that the engine had of them, events."""

    ttft: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    events: int = 0


class Client:
    """Makes the requests and keeps what came of them."""

    def __init__(self, task: Task) -> None:
        self.samples = Samples()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ending = False
        self._task = task
        self._host = task.host.encode()
        self._numbers = itertools.count()
        self._random = Random(0)
        self._bodies = {
            tokens: self._template(tokens) for tokens in range(task.load.low, task.load.high + 1)
        }

    def _template(self, tokens: int) -> tuple[bytes, bytes]:
        stream = b"true" if self._task.load.stream else b"false"
        ask = b',"max_tokens":%d,"stream":%b}' % (tokens, stream)
        return self._task.head.encode(), self._task.tail.encode() + ask

    def request(self) -> bytes:
        load = self._task.load
        head, tail = self._bodies[self._random.randint(load.low, load.high)]
        body = b"%b%012x%b" % (head, next(self._numbers), tail)
        return _HEAD % (self._host, self._task.port, len(body), body)

    def fail(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(RequestFailed(why))


class Connection(asyncio.Protocol):
    """Sends a request, stamps its answer's first byte, and at its end sends the next one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._sent = self._first = self._engine = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._client.ending:
            self._client.fail(f"the connection was lost: {exc or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-engine-us":
            self._engine = int(value) / 1e6

    def on_body(self, data: bytes) -> None:
        if not self._first:
            self._first = perf_counter()
        self._client.samples.events += data.count(b"data: ")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._client.fail(f"status {status}")
            return
        samples = self._client.samples
        samples.ttft.append(self._first - self._sent)
        samples.engine.append(self._engine)
        if not self._client.ending:
            self._send()

    def _send(self) -> None:
        self._first = 0.0
        request = self._client.request()
        self._sent = perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        self._transport.abort()


async def run(task: Task) -> Result:
    """Raises RequestFailed, or OSError when there is no connection."""
    loop = asyncio.get_running_loop()
    client = Client(task)
    connections = [
        (await loop.create_connection(lambda: Connection(client), task.host, task.port))[1]
        for _ in range(task.load.concurrency)
    ]
    await _unless_failed(client, task.seconds * WARM_UP)
    # The collector's pauses would be taken for the server's.
    gc.collect()
    gc.disable()
    samples = client.samples = Samples()
    began, cpu, own = perf_counter(), cpu_seconds(task.pids), process_time()
    await _unless_failed(client, task.seconds * (1 - WARM_UP))
    seconds, own_cpu = perf_counter() - began, process_time() - own
    cpu = cpu_seconds(task.pids) - cpu
    client.ending = True
    for connection in connections:
        connection.close()
    return _result(samples, seconds=seconds, cpu=cpu, own_cpu=own_cpu)


async def _unless_failed(client: Client, seconds: float) -> None:
    await asyncio.wait([client.failed], timeout=seconds)
    if client.failed.done():
        client.failed.result()


def _result(samples: Samples, *, seconds: float, cpu: float, own_cpu: float) -> Result:
    if not samples.ttft:
        raise RequestFailed(f"no answer within {seconds:.1f} s")
    beyond = [ttft - engine for ttft, engine in zip(samples.ttft, samples.engine, strict=True)]
    return Result(
        requests=len(samples.ttft),
        events=samples.events,
        seconds=seconds,
        beyond_p50=percentile(beyond, 0.5) * 1e3,
        beyond_p99=percentile(beyond, 0.99) * 1e3,
        ttft_p50=percentile(samples.ttft, 0.5) * 1e3,
        cpu=cpu,
        own_cpu=own_cpu,
    )


def read_task(document: dict[str, Any]) -> Task:
    return Task(**document | {"load": Load(**document["load"])})


def main() -> None:
    task = read_task(orjson.loads(sys.stdin.buffer.read()))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(run(task))
    except (RequestFailed, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.buffer.write(orjson.dumps(asdict(result)))


if __name__ == "__main__":
    main()
