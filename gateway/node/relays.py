"""The relay processes of a node: started, told, replaced when they die, drained at the end.

Each has a place with a number; the process in it may change, and its name says which one it is
(`r0.2` is the third in place 0), so that no two ever have tickets of one name.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from gateway.config import Config
from gateway.directory import Directory, Row
from gateway.node.link import Message
from gateway.node.messages import KEYS, ROW
from gateway.node.relay import Relay
from gateway.rehearsal import WITHIN
from gateway.tasks import Tasks
from gateway.tenancy.config import KeyConfig

log = logging.getLogger("forebay.node")

RESTART_AFTER = (0.0, 0.5, 2.0, 5.0)
"""Seconds before a process is replaced, by how many before it in its place died young."""
YOUNG = 10.0
REHEARSED_WITHIN = 2 * WITHIN
"""Seconds that processes are waited for, which rehearse with one backend after the other."""
DRAIN_EXCESS = 5.0
"""Seconds over the grace after which a process that drains is waited for no longer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often records are collected, in seconds (a killed process takes the last ones along),
    and how long each process has to tell its own. One that is silent for `silences` times in a row
    hangs, and is killed: its slots, and the connections that the kernel gives it, would hang too.
    """

    interval: float = 1.0
    timeout: float = 1.0
    silences: int = 5


class Port(Protocol):
    """Takes what a relay process says about requests and backends."""

    def handles(self, message: Message) -> bool: ...

    def close(self) -> None: ...


Records = Callable[[str, Any, Any], None]
"""Takes a relay process's name, what it has counted, and its tokenizer pool's report."""


class Relays:
    """`admit(relay)` opens the brain's port for one, `collect` takes its records, `answer(what)`
    says what only the brain knows."""

    def __init__(
        self,
        config: Config,
        tasks: Tasks,
        pace: Pace,
        *,
        admit: Callable[[Relay], Port],
        collect: Records,
        answer: Callable[[str], Awaitable[tuple[bool, bytes]]],
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._pace = pace
        self._admit = admit
        self._collect = collect
        self._answer = answer
        self._running: dict[str, Relay] = {}
        self._ports: dict[str, Port] = {}
        self._models: dict[str, str | None] = {}
        self._numbers = itertools.count(1)
        self._address: tuple[str, int] | None = None
        self._directory = Directory()
        self._keys = config.keys
        self.draining = False
        self.restarts = 0

    def names(self) -> list[str]:
        """The processes that run now."""
        return list(self._running)

    def pids(self) -> list[int]:
        """Their process ids."""
        return [relay.pid for relay in self._running.values() if relay.pid is not None]

    async def start(self, count: int, address: tuple[str, int], directory: Directory) -> None:
        """Start so many, and return when each listens at the address (or has died of it)."""
        self._address, self._directory = address, directory
        first = [asyncio.Event() for _ in range(count)]
        for place, listening in enumerate(first):
            self._tasks.spawn(f"relay-{place}", self._keep(place, listening))
        await _all(first)

    async def load(self, model: str, location: str | None) -> None:
        """Have every process load a model's tokenizer; with no location its prompts go as text."""
        self._models[model] = location
        for relay in self._running.values():
            self._load(relay, model, location)
        await _all(relay.loaded[model] for relay in list(self._running.values()))

    async def rehearse(self, backend: str, row: Row) -> None:
        """Have every process rehearse with a backend, and wait for it."""
        number = next(self._numbers)
        asked = list(self._running.values())
        document = ROW.dump_python(row, mode="json")
        answers = [relay.ask("rehearse", number, backend, document) for relay in asked]
        await _all(answers, within=REHEARSED_WITHIN)
        for relay in asked:
            del relay.awaited[number]

    def publish(self, backend: str) -> None:
        """Tell everyone of a backend's new row in the directory."""
        for relay in self._running.values():
            self._tell_row(relay, backend)

    def set_keys(self, keys: Mapping[str, KeyConfig]) -> None:
        """Tell everyone, now and later, which API keys are in force."""
        self._keys = keys
        for relay in self._running.values():
            self._tell_keys(relay)

    async def flush(self) -> None:
        """Collect everyone's records, as far as they come in time; kill who is silent for long."""
        number = next(self._numbers)
        asked = list(self._running.values())
        answers = [relay.ask("flush", number) for relay in asked]
        await _all(answers, within=self._pace.timeout)
        for relay in asked:
            answered = relay.awaited.pop(number).is_set() or not relay.has_spoken
            relay.silences = 0 if answered else relay.silences + 1
            if relay.silences == self._pace.silences:
                log.error("relay process %s hangs and is killed", relay.name)
                relay.kill()

    def leave(self) -> None:
        """Have all processes say that we are going, and serve on."""
        self.draining = True
        for relay in self._running.values():
            relay.link.send("leave")

    async def drain(self, grace: float) -> None:
        """Take nothing new; return when the last exchange has ended, within `grace` seconds."""
        self.draining = True
        for relay in self._running.values():
            relay.link.send("drain", grace)
        drained = [relay.drained for relay in self._running.values()]
        await _all(drained, within=grace + DRAIN_EXCESS)

    async def stop(self) -> None:
        """End every process."""
        self.draining = True
        await asyncio.gather(*(relay.end() for relay in list(self._running.values())))

    # one place

    async def _keep(self, place: int, listening: asyncio.Event) -> None:
        """Have a process in the place until the drain."""
        died_young = 0
        for generation in itertools.count():
            relay = Relay(f"r{place}.{generation}", self._received)
            relay.listening = listening
            began = monotonic()
            await self._run(relay)
            if self.draining:
                return
            died_young = died_young + 1 if monotonic() - began < YOUNG else 0
            await asyncio.sleep(RESTART_AFTER[min(died_young, len(RESTART_AFTER) - 1)])
            self.restarts += 1

    async def _run(self, relay: Relay) -> None:
        """Run a process from hello to its end."""
        try:
            await relay.start()
            self._running[relay.name] = relay
            self._ports[relay.name] = self._admit(relay)
            self._greet(relay)
            await relay.until_gone()
        except OSError as error:
            log.error("cannot start a relay process: %s", error)
        finally:
            if self._running.pop(relay.name, None) is not None:
                self._ports.pop(relay.name).close()
            status = await relay.end()
            if not self.draining:
                log.error("relay process %s ended with status %s", relay.name, status)

    def _greet(self, relay: Relay) -> None:
        """All that a new process must know before it may listen."""
        level = logging.getLevelName(logging.getLogger("forebay").level)
        relay.link.send("hello", relay.name, level, self._config.model_dump(mode="json"))
        self._tell_keys(relay)
        for backend in self._directory.rows:
            self._tell_row(relay, backend)
        for model, location in self._models.items():
            self._load(relay, model, location)
        assert self._address is not None, "start has set it"
        relay.link.send("listen", *self._address)

    def _load(self, relay: Relay, model: str, location: str | None) -> None:
        relay.loaded[model] = asyncio.Event()
        relay.link.send("load", model, location)

    def _tell_keys(self, relay: Relay) -> None:
        relay.link.send("keys", KEYS.dump_python(dict(self._keys), mode="json"))

    def _tell_row(self, relay: Relay, backend: str) -> None:
        row = self._directory.rows.get(backend)
        if row is None:
            relay.link.send("gone", backend)
        else:
            relay.link.send("row", backend, ROW.dump_python(row, mode="json"))

    # what a process says

    def _received(self, relay: Relay, message: Message) -> None:
        relay.has_spoken = True
        if self._ports[relay.name].handles(message):
            return
        match message:
            case ["ask", number, what]:
                self._tasks.spawn(f"tell-{what}", self._tell(relay, number, what))
            case ["flushed", number, metrics, report]:
                self._collect(relay.name, metrics, report)
                relay.has_answered(number)
            case ["loaded", model, problem]:
                if problem is not None:
                    log.error("relay process %s has no tokenizer: %s", relay.name, problem)
                relay.loaded[model].set()
            case ["rehearsed", number]:
                relay.has_answered(number)
            case ["listening"]:
                relay.listening.set()
            case ["drained", metrics, report]:
                self._collect(relay.name, metrics, report)
                relay.drained.set()
            case _:
                raise ValueError(f"relay process {relay.name} says {message[0]!r}")

    async def _tell(self, relay: Relay, number: int, what: str) -> None:
        yes, body = await self._answer(what)
        relay.link.send("told", number, yes, body.decode())


async def _all(events: Iterable[asyncio.Event], *, within: float | None = None) -> None:
    """Wait until all are set, or for so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            for event in list(events):
                await event.wait()
