"""The composition root of a gateway in several processes; this is what runs in their parent."""

import asyncio
from dataclasses import replace
from typing import Any

from gateway.brain import Brain, Surroundings
from gateway.config import Config
from gateway.metrics import Metrics
from gateway.node.messages import REPORT
from gateway.node.port import Port
from gateway.node.relay import Relay
from gateway.node.relays import Pace, Relays
from gateway.node.reservation import Reservation
from gateway.node.tokenizers import NodeTokenizers, together
from gateway.settings import pool_settings
from gateway.tasks import Tasks
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import PoolReport


class Node:
    """One brain, in this process, and its relay processes."""

    def __init__(self, config: Config, count: int, pace: Pace | None = None) -> None:
        self.config = config
        self.tasks = Tasks()
        self._count = count
        self._pace = pace or Pace()
        self._metrics = Metrics()
        self.reports: dict[str, PoolReport] = {}  # of each relay process, a second old at most
        self._reservation: Reservation | None = None
        # For the parity check alone: requests are prepared in the relay processes.
        own = replace(pool_settings(config), inline_max_bytes=0, workers=1)
        self._pool = TokenizerPool(own, self.tasks.spawn)
        self.relays = Relays(
            config,
            self.tasks,
            self._pace,
            admit=self._admit,
            collect=self._collect,
            answer=self._answer,
        )
        self.brain = Brain(
            config,
            self.tasks,
            self._metrics,
            Surroundings(
                tokenizers=NodeTokenizers(self._pool, self.relays.load),
                report=lambda: together(self._pool.report(), self.reports.values()),
                draining=lambda: self.relays.draining,
                published=self.relays.publish,
                keys=self.relays.set_keys,
                rehearse=self.relays.rehearse,
            ),
        )
        self.driver, self.status = self.brain.driver, self.brain.status

    async def start(self) -> int:
        """Listen, then let the fleet get ready; returns the port. Raises OSError."""
        self._reservation = Reservation(self.config.host, self.config.port)
        await self._pool.start()
        address = (self.config.host, self._reservation.port)
        await self.relays.start(self._count, address, self.brain.catalogue.directory)
        await self.brain.start()
        self.tasks.spawn("collect", self._collect_often())
        return self._reservation.port

    def leave(self) -> None:
        """Say that we are going, and serve on."""
        self.relays.leave()

    async def drain(self, grace: float) -> None:
        """Take nothing new; return when all that was taken has ended, or `grace` seconds are over.

        What waits for a backend is served as long as there is time: it was taken.
        """
        refusing = asyncio.get_running_loop().call_later(grace, self.driver.drain)
        await self.relays.drain(grace)
        refusing.cancel()

    async def stop(self) -> None:
        """Stop every part, in the order of the request's path."""
        await self.relays.stop()
        await self.brain.stop()
        await self._pool.stop()
        await self.tasks.stop()
        if self._reservation is not None:
            self._reservation.close()

    def _admit(self, relay: Relay) -> Port:
        return Port(relay.name, self.brain, relay.link.send)

    def _collect(self, name: str, metrics: Any, report: Any) -> None:
        self._metrics.merge(metrics)
        self.reports[name] = REPORT.validate_python(report)

    async def _collect_often(self) -> None:
        while True:
            await asyncio.sleep(self._pace.interval)
            await self.relays.flush()
            running = self.relays.names()
            self.reports = {n: r for n, r in self.reports.items() if n in running}

    async def _answer(self, what: str) -> tuple[bool, bytes]:
        match what:
            case "models":
                return True, self.status.models()
            case "ready":
                return self.status.ready()
        await self.relays.flush()
        return True, await self._metrics.render()
