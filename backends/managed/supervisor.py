"""One engine of a plan: started, and started again when it ends, with a backoff."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from time import monotonic

from backends.managed.process import EngineProcess, PortTaken, check_port
from backends.plans.model import Engine


@dataclass(frozen=True, slots=True)
class ManagedSettings:
    """`command` is what starts an engine, `host` where it listens. An engine that is to end is
    killed after `grace`. One that ended by itself is started again after `backoff_first`, doubling
    up to `backoff_max`, times a random 0.5 to 1; one that ran for `stable` starts over."""

    command: tuple[str, ...]
    host: str = "127.0.0.1"
    grace: float = 15.0
    backoff_first: float = 1.0
    backoff_max: float = 60.0
    stable: float = 120.0


def command_line(engine: Engine, settings: ManagedSettings) -> tuple[str, ...]:
    """`vllm serve` takes the model by position, the server's module by name."""
    model, *options = engine.arguments()
    named = (model,) if settings.command[-1] == "serve" else ("--model", model)
    where = ("--host", settings.host, "--port", str(engine.port))
    return (*settings.command, *named, *where, *options)


class ManagedEngine:
    """Keeps one engine running until it is told to stop. `tell` gets its lines and its fate."""

    def __init__(
        self,
        engine: Engine,
        settings: ManagedSettings,
        tell: Callable[[str], None],
        rng: Random | None = None,
    ) -> None:
        self.engine = engine
        self.starts = 0
        self.failures = 0
        """How often in a row it has ended by itself, without having run for long."""
        self._settings = settings
        self._tell = tell
        self._rng = rng or Random()
        self._wanted = True
        self._restarting = False
        self._process: EngineProcess | None = None
        self._woken = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Its group's first process, while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Live until `stop`. What it started has ended when this returns, however it returns."""
        while self._wanted:
            self._restarting = False
            self._woken.clear()
            began = monotonic()
            fate = await self._once()
            if not self._wanted or self._restarting:
                self.failures = 0
                continue
            if monotonic() - began >= self._settings.stable:
                self.failures = 0
            wait = self._backoff(self.failures)
            self.failures += 1
            self._tell(f"{fate}; starting again in {wait:.1f} s")
            await self._pause(wait)

    async def stop(self) -> None:
        """End it for good; returns when its whole group is gone."""
        self._wanted = False
        await self._end()

    async def restart(self, engine: Engine | None = None) -> None:
        """End it, and have it started again at once, as this plan says if one is given."""
        self.engine = engine or self.engine
        self._restarting = True
        await self._end()
        self.failures = 0

    async def _end(self) -> None:
        self._woken.set()
        if self._process is not None:
            await self._process.end(self._settings.grace)

    async def _once(self) -> str:
        """Run it once; returns how that ended."""
        try:
            await check_port(self._settings.host, self.engine.port)
            self._process = await EngineProcess.start(
                command_line(self.engine, self._settings),
                self.engine.variables(),
                self._tell,
                grace=self._settings.grace,
            )
        except (PortTaken, OSError) as error:
            return f"cannot start: {error}"
        self.starts += 1
        self._tell(f"started as process {self._process.pid}")
        try:
            if not self._wanted:
                return "was told to stop while it started"
            return f"ended with status {await self._process.ended()}"
        finally:
            # Its first process ended, or we are to: nothing of the group may stay.
            await self._process.end(0.0)
            self._process = None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _backoff(self, failures: int) -> float:
        settings = self._settings
        longest = min(settings.backoff_first * 2.0 ** min(failures, 32), settings.backoff_max)
        return longest * self._rng.uniform(0.5, 1.0)
