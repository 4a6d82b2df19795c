"""What is sent, and what comes of it: five loads, and a client's report on one of them.

The added TTFT is taken at one request at a time and at 64 streams; CPU per request and throughput
at saturation with answers that are not streamed; CPU per chunk from two runs of paced streams that
differ in length only.
"""

from dataclasses import dataclass, field

from bench.peers.place import HOST

STREAMS = 64


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop. Each answer has `low` to `high` tokens, each a chunk where it is streamed.

    `prefill` and `gap` (seconds) are the engine's pace.
    """

    concurrency: int
    low: int
    high: int
    stream: bool = True
    prefill: float = 0.0
    gap: float = 0.0


LOADS = {
    "one": Load(1, 8, 8),
    "streams": Load(STREAMS, 8, 24, prefill=0.02, gap=0.01),
    "saturated": Load(STREAMS, 8, 8, stream=False),
    "few_chunks": Load(STREAMS, 5, 15, gap=0.005),
    "many_chunks": Load(STREAMS, 80, 120, gap=0.005),
}
"""Lengths differ within a load, so that its streams do not all begin at the same moment."""
UNPACED = LOADS | {
    "few_chunks": Load(STREAMS // 4, 5, 15),
    "many_chunks": Load(STREAMS // 4, 40, 60),
}
"""The same before a real engine, which may take a tenth of a second for a chunk of 64 streams."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a client is to do: `load` against `port` of `host` for `seconds`, watching `pids`' CPU.

    `head` and `tail` are a request's body, less the number that makes each prompt another one.
    """

    port: int
    load: Load
    seconds: float
    head: str
    tail: str
    pids: list[int] = field(default_factory=list)
    host: str = HOST


@dataclass(frozen=True, slots=True)
class Result:
    """One load against one server, warm-up left out. `requests` ended and `events` came in it.

    `beyond_p50` and `beyond_p99`: milliseconds to the first token, less what the engine itself
    kept the request. `cpu` is of the watched processes, `own_cpu` of the client, in seconds.
    """

    requests: int
    events: int
    seconds: float
    beyond_p50: float
    beyond_p99: float
    ttft_p50: float
    cpu: float
    own_cpu: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of the watched processes' CPU for each request."""
        return self.cpu / self.requests * 1e6
