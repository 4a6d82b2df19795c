"""The composition root of a gateway in one process. `node.brain` is that of several."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from gateway.brain import Brain, Surroundings
from gateway.config import Config
from gateway.directory import Row
from gateway.front import Front, Neighbours
from gateway.metrics import Metrics
from gateway.rehearsal import rehearse
from gateway.settings import pool_settings
from gateway.status import OwnStatus
from gateway.tasks import Tasks
from gateway.tenancy.config import KeyConfig
from tokenizer_pool.pool import TokenizerPool


class App:
    """One gateway on the running event loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.tasks = Tasks()
        self.metrics = Metrics()
        self.pool = TokenizerPool(pool_settings(config), self.tasks.spawn)
        self.brain = brain = Brain(
            config,
            self.tasks,
            self.metrics,
            Surroundings(
                tokenizers=self.pool,
                report=self.pool.report,
                draining=lambda: self.server.draining,
                published=_nobody_else,
                keys=self._keys_changed,
                rehearse=self._rehearse,
            ),
        )
        self.driver, self.fleet, self.catalogue = brain.driver, brain.fleet, brain.catalogue
        self.control, self.status = brain.control, brain.status
        self._neighbours = Neighbours(
            pool=self.pool,
            admitter=brain.door,
            directory=self.catalogue.directory,
            upstream=self.fleet,
            about=OwnStatus(self.status, self.metrics.render),
            distrust=brain.distrust,
        )
        self.front = Front(config, self.tasks, self.metrics, self._neighbours)
        self.server = self.front.server

    def _keys_changed(self, keys: Mapping[str, KeyConfig]) -> None:
        self.front.access.configure(keys)

    async def _rehearse(self, backend: str, row: Row) -> None:
        around = replace(self._neighbours, admitter=self.brain.understudy(backend))
        self.fleet.spent(backend, await rehearse(self.config, self.tasks, around, (backend, row)))

    async def start(self) -> int:
        """Listen, then let the fleet get ready; returns the port. Raises OSError."""
        port = await self.front.listen(self.config.host, self.config.port)
        await self.pool.start()
        await self.brain.start()
        return port

    def leave(self) -> None:
        """Say that we are going, and serve on."""
        self.server.leave()

    async def drain(self, grace: float) -> None:
        """Take nothing new; return when all that was taken has ended, or `grace` seconds are over.

        What waits for a backend is served as long as there is time: it was taken.
        """
        refusing = asyncio.get_running_loop().call_later(grace, self.driver.drain)
        await self.server.drain(grace)
        refusing.cancel()

    async def stop(self) -> None:
        """Stop every part, in the order of the request's path."""
        await self.server.drain(0.0)
        await self.brain.stop()
        await self.front.stop()
        await self.tasks.stop()


def _nobody_else(_backend: str) -> None:
    """The request path reads the brain's own directory, in this very process."""
