"""What runs in one relay process: a front, its tokenizers and its own connections to the backends.

    python -m gateway.node.process FD

`FD` is its end of a socket pair whose other end the brain holds. Everything it needs to know comes
over that link; when the link is lost, so is the brain, and the process ends.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvloop

from backends.client import Client, ClientLimits
from backends.errors import BackendError
from backends.lifecycle import FAILED_STATUSES
from backends.types import BackendSpec, OwnTraffic
from backends.upstreams import Upstreams
from gateway.config import Config
from gateway.directory import Directory, Row
from gateway.front import Front, Neighbours
from gateway.log import configure
from gateway.metrics import Metrics
from gateway.node.link import Link, Message
from gateway.node.messages import KEYS, REPORT, ROW
from gateway.node.remote import RemoteBrain
from gateway.rehearsal import rehearse
from gateway.settings import pool_settings
from gateway.tasks import Tasks
from tokenizer_pool.errors import TokenizerUnavailable, WorkerFailed
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import TokenizerSource

log = logging.getLogger("forebay.relay")

TRAFFIC_INTERVAL = 0.25
"""Seconds between reports of what is open to each backend."""


class RelayProcess:
    """One front, told by a brain."""

    def __init__(self, name: str, config: Config, tasks: Tasks, send: Callable[..., None]) -> None:
        self._name = name
        self._config = config
        self._tasks = tasks
        self._send = send
        self._specs: dict[str, BackendSpec] = {}
        self._successes: Counter[str] = Counter()
        self._directory = Directory(config.backends)
        self._brain = RemoteBrain(send)
        self._pool = TokenizerPool(pool_settings(config), tasks.spawn)
        self._loading = asyncio.Lock()
        self._rehearsing = asyncio.Lock()
        self._metrics = Metrics()
        self._upstreams = Upstreams(
            ClientLimits(),
            tasks.spawn,
            on_answer=self._answered,
            on_failure=self._brain.report_failure,
        )
        self._neighbours = Neighbours(
            pool=self._pool,
            admitter=self._brain,
            directory=self._directory,
            upstream=self,
            about=self._brain,
            distrust=self._brain.distrust,
            name=f"{name}-",
        )
        self.front = Front(config, tasks, self._metrics, self._neighbours)
        self._begin("pool", self._pool.start())
        self._begin("traffic", self._tell_traffic())
        self._on: dict[str, Callable[..., None]] = {
            "answer": self._brain.answered,
            "told": self._brain.told,
            "row": self._put_row,
            "gone": self._drop_row,
            "keys": self._put_keys,
            "load": lambda *what: self._begin("load", self._load(*what)),
            "listen": lambda *where: self._begin("listen", self._listen(*where)),
            "rehearse": lambda *what: self._begin("rehearsal", self._rehearse_as_told(*what)),
            "flush": self._flush,
            "leave": self.front.server.leave,
            "drain": lambda grace: self._begin("drain", self._drain(grace)),
        }

    def receive(self, message: Message) -> None:
        """Carry out what the brain says."""
        self._on[message[0]](*message[1:])

    async def stop(self) -> None:
        await self.front.stop()
        await self._upstreams.stop()

    # handlers.Upstream

    def client(self, name: str) -> Client:
        return self._upstreams.client(name)

    def report_failure(self, name: str, error: BackendError) -> None:
        self._brain.report_failure(name, error)

    # what the brain says

    def _put_row(self, name: str, document: Any) -> None:
        row = ROW.validate_python(document)
        self._directory.put(name, row)
        if row.spec is not None and self._specs.get(name) != row.spec:
            self._specs[name] = row.spec
            self._upstreams.apply(self._specs.values(), self._config.drain_grace)
        self._upstreams.keep_ready(name, row.ready)

    def _drop_row(self, name: str) -> None:
        self._directory.remove(name)
        if self._specs.pop(name, None) is not None:
            self._upstreams.apply(self._specs.values(), self._config.drain_grace)

    def _put_keys(self, document: Any) -> None:
        self.front.access.configure(KEYS.validate_python(document))

    async def _load(self, model: str, location: str | None) -> None:
        """Get a model's tokenizer; the brain has found it already, and waits for us."""
        problem = None
        try:
            async with self._loading:
                if location is not None:
                    await self._pool.add_model(TokenizerSource(model, location))
                else:
                    await self._pool.add_text_model(model)
        except (TokenizerUnavailable, WorkerFailed) as error:
            problem = str(error)
        finally:
            self._send("loaded", model, problem)

    async def _listen(self, host: str, port: int) -> None:
        """Begin to serve, as soon as what was to be loaded before is loaded. One that takes the
        place of another finds backends that are ready, and rehearses with them."""
        async with self._loading:
            for name, row in list(self._directory.rows.items()):
                if row.ready:
                    await self._rehearse(name, row)
            await self.front.listen(host, port, shared=True)
        self._send("listening")

    async def _rehearse_as_told(self, number: int, name: str, document: Any) -> None:
        try:
            await self._rehearse(name, ROW.validate_python(document))
        finally:
            self._send("rehearsed", number)

    async def _rehearse(self, name: str, row: Row) -> None:
        """One after the other: the brain has one understudy for each process."""
        async with self._rehearsing:
            self._send("rehearsing", name)
            spent = OwnTraffic(0, 0)
            try:
                around = self._neighbours
                spent = await rehearse(self._config, self._tasks, around, (name, row))
            finally:
                self._send("spent", name, spent.requests, spent.prompt_tokens)

    def _flush(self, number: int) -> None:
        self._send("flushed", number, *self._records())

    async def _drain(self, grace: float) -> None:
        await self.front.server.drain(grace)
        self._send("drained", *self._records())

    # the rest

    def _records(self) -> tuple[Any, Any]:
        return self._metrics.export(), REPORT.dump_python(self._pool.report(), mode="json")

    def _begin(self, what: str, work: Any) -> None:
        self._tasks.spawn(f"relay-{what}", work)

    def _answered(self, name: str, status: int) -> None:
        """Failures are told at once; a message for each success would cost more than it tells."""
        if status in FAILED_STATUSES:
            self._send("answered", name, status)
        else:
            self._successes[name] += 1

    async def _tell_traffic(self) -> None:
        """Tell what is open to each backend when that has changed, and what was answered."""
        told: dict[str, tuple[int, float, float]] = {}
        while True:
            await asyncio.sleep(TRAFFIC_INTERVAL)
            now = {name: _traffic(self._upstreams.client(name)) for name in self._specs}
            changed = [[name, *seen] for name, seen in now.items() if told.get(name) != seen]
            told = now
            if changed:
                self._send("traffic", changed)
            for name, times in self._successes.items():
                self._send("answered", name, 200, times)
            self._successes.clear()


def _traffic(client: Client) -> tuple[int, float, float]:
    idle_since, heard_at = client.idle_since, client.heard_at
    return client.in_flight, heard_at, heard_at if idle_since is None else idle_since


async def serve(descriptor: int) -> None:
    """Run until the brain has drained us or is gone."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A Ctrl-C at the terminal is for the brain, which tells us to drain.
        loop.add_signal_handler(number, lambda: None)
    gone, tasks = asyncio.Event(), Tasks()
    process: RelayProcess | None = None

    def receive(message: Message) -> None:
        nonlocal process
        if process is None:
            _, name, level, settings = message
            configure(level)
            process = RelayProcess(name, Config.model_validate(settings), tasks, link.send)
        else:
            process.receive(message)

    link = Link(receive, gone.set)
    await loop.create_connection(lambda: link, sock=socket.socket(fileno=descriptor))
    try:
        await gone.wait()
    finally:
        if process is not None:
            await process.stop()
        await tasks.stop()


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
