"""The life of one backend: probed, warmed, watched, and back again when it was lost.

    PROBING ──proved──► WARMING ──warm──► READY ──version changed──► PROBING
       ▲                    │                │
       └──────backoff── DOWN ◄──failure──────┘

Lives here: the transitions, and when to ask for a sign of life. Not here: what is asked
(`probe`, `channels`, `warm`), and what the states mean for traffic (the scheduler).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from time import monotonic

from backends.breaker import Breaker
from backends.channels import prove
from backends.errors import BackendError, ConnectError, ConnectionsExhausted, NotServing
from backends.probe import Probe
from backends.settings import FleetSettings
from backends.traffic import Traffic
from backends.types import BackendSpec, BackendStatus, Capabilities, State
from backends.warm import Warmer

FAILED_STATUSES = frozenset((500, 502, 504))
"""Answers that count as failures of the backend; 503 says that it is busy."""
KEEP_SHARES = (0.8, 1.0)
"""Of `keep_after`: between which shares of it a keep-warm request comes."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a life asks its server with, and what it knows of its traffic."""

    traffic: Traffic
    probe: Probe
    warmer: Warmer


class Lifecycle:
    """Runs one backend's states and reports each change to `on_change`, from the event loop.

    `has_peer` tells whether another READY backend could take this one's traffic: only then is it
    put out for failing often (never the last one), and only then eased in when it is back.
    `proofs` counts how often the server was proved.
    """

    def __init__(
        self,
        tools: Tools,
        settings: FleetSettings,
        on_change: Callable[[BackendStatus], None],
        *,
        has_peer: Callable[[], bool],
        rng: Random,
    ) -> None:
        self.name = tools.probe.spec.name
        self.traffic = tools.traffic
        self.probe = tools.probe
        self.warmer = tools.warmer
        self.status = BackendStatus(tools.probe.spec, State.PROBING, None, "not probed yet")
        self.proofs = 0
        self._settings = settings
        self._on_change = on_change
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._checked_at = 0.0
        self._keep_share = 1.0
        self._wake = asyncio.Event()
        self._has_peer = has_peer
        self._breaker = Breaker(settings.breaker)
        self._ramp: asyncio.TimerHandle | None = None
        self._lost: BackendError | None = None
        self._suspected = False

    async def run(self) -> None:
        """Live until cancelled."""
        failures = 0
        while True:
            started = monotonic()
            try:
                await self._become_ready()
                await self._watch()
            except BackendError as error:
                self._become(State.DOWN, error.message)
            else:
                continue
            if monotonic() - started >= self._settings.backoff_max:
                failures = 0
            await asyncio.sleep(backoff(failures, self._settings, self._rng))
            failures += 1

    def report_failure(self, error: BackendError) -> None:
        """Traffic saw this. Without a connection it is DOWN at once; else it is asked at once."""
        if isinstance(error, ConnectionsExhausted):
            return
        if isinstance(error, ConnectError):
            self._lose(error)
        else:
            self._failed(error.message)

    def answered(self, status: int, times: int) -> None:
        """Requests of traffic were answered with this status, so many. Failures come one by one."""
        if status in FAILED_STATUSES:
            self._failed(f"answered {status}")
        else:
            self._breaker.succeeded(monotonic(), times)

    def respecify(self, spec: BackendSpec) -> None:
        """Put in force what the operator says of the same server: its classes, limit, weight."""
        self.status = replace(self.status, spec=spec)
        self._on_change(self.status)

    def drain(self) -> None:
        """No new requests from now on; `run` is to be cancelled, and may be begun again later."""
        self._become(State.DRAINING, "draining")

    def restarted(self) -> None:
        """It is another process than the one that was proved: no traffic until it is, too."""
        self._lose(NotServing(self.name, "the server was restarted"))

    def _failed(self, why: str) -> None:
        if self.status.state is not State.READY:
            return
        if self._breaker.failed(monotonic()) and self._has_peer():
            self._lose(NotServing(self.name, f"fails too often, at last: {why}"))
        else:
            self._suspected = True
            self._wake.set()

    def _lose(self, error: BackendError) -> None:
        if self.status.state is State.READY:
            self._lost = error
            self._become(State.DOWN, error.message)
            self._wake.set()

    async def _become_ready(self) -> None:
        self._become(State.PROBING, "probing")
        found = await prove(self.probe)
        self.status = replace(self.status, capabilities=found)
        self.proofs += 1
        self._become(State.WARMING, "warming up")
        model = found.models[0]
        done = await self.warmer.warm_up(found.generate_path, model.name, self._lengths(found))
        self.status = replace(self.status, prefill_rate=done.prefill_rate)
        self._lost, self._suspected = None, False
        self._breaker.reset()
        if self._settings.ramp and self._has_peer():
            self._ease_in(0.0)
        steps = " → ".join(f"{ttft * 1e3:.0f}" for ttft in done.ttfts)
        self._become(State.READY, f"warm, time to first token {steps or '?'} ms")

    async def _watch(self) -> None:
        """Return when the server must be proved again; raise BackendError when it is lost."""
        strikes = 0
        self._checked_at = monotonic()
        while True:
            # A client that asks as seldom as this does must not meet it each time.
            self._keep_share = self._rng.uniform(*KEEP_SHARES)
            keep_warm = await self._until_check_is_due()
            asked_at = monotonic()
            try:
                changed = await self._check(keep_warm=keep_warm)
            except ConnectError:
                raise
            except BackendError:
                # Tokens that came meanwhile prove more than an answer that did not.
                strikes = 0 if self.traffic.heard_at > asked_at else strikes + 1
                if strikes >= self._settings.health_strikes:
                    raise
                self._suspected = True
            else:
                strikes = 0
                if changed:
                    return
            self._checked_at = monotonic()

    async def _until_check_is_due(self) -> bool:
        """Wait; True when the check that is due is an idle backend's keep-warm request.

        Traffic that moves meanwhile moves the time, so a busy and answering backend is never asked.
        """
        while True:
            if self._lost is not None:
                raise self._lost
            due, keep_warm = self._next_check()
            wait = due - monotonic()
            if wait <= 0:
                self._suspected = False
                return keep_warm
            # A backend in use may fall idle at any time: look again before it can have cooled.
            await self._pause(min(wait, self._settings.warm.keep_after or wait))

    def _next_check(self) -> tuple[float, bool]:
        """When the next check is due if nothing changes, and whether it is a keep-warm request."""
        if self._suspected:
            return self._checked_at + self._settings.backoff_first, False
        idle_since, keep_after = self.traffic.idle_since, self._settings.warm.keep_after
        if idle_since is not None and keep_after is not None:
            return max(idle_since, self._checked_at) + keep_after * self._keep_share, True
        heard_at = max(self.traffic.heard_at, self._checked_at)
        return heard_at + self._settings.health_interval, False

    async def _check(self, *, keep_warm: bool) -> bool:
        """Ask for one token, and whether it is still the server that was proved."""
        found = self.status.capabilities
        assert found is not None
        path, model = found.generate_path, found.models[0].name
        within = self._settings.health_timeout
        if keep_warm:
            lengths = self._lengths(found)
            await self.warmer.one_token(path, model, lengths[len(lengths) // 2], within)
        else:
            answer = await self.probe.one_token(path, model, within=within)
            if not (answer.ok or answer.busy):
                raise NotServing(self.name, f"{path} answered {answer.status}")
        version = await self.probe.version()
        return version is not None and version != found.version

    def _lengths(self, found: Capabilities) -> tuple[int, ...]:
        """The warm-up's prompt lengths, which the prompts have only about: so half the context at
        most."""
        wanted = self._settings.warm.lengths_for(self.status.spec)
        longest = found.models[0].max_model_len
        return wanted if longest is None else tuple(min(each, longest // 2) for each in wanted)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but wake for news from traffic."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _ease_in(self, share: float) -> None:
        """Give one step more of its limit, and go on until it has all of it."""
        steps = self._settings.ramp_steps
        self.status = replace(self.status, share=min(share + 1 / steps, 1.0))
        if self.status.share < 1.0:
            self._ramp = self._loop.call_later(self._settings.ramp / steps, self._next_step)

    def _next_step(self) -> None:
        self._ease_in(self.status.share)
        self._on_change(self.status)

    def _become(self, state: State, reason: str) -> None:
        share = self.status.share if state is State.READY else 1.0
        if self._ramp is not None and state is not State.READY:
            self._ramp.cancel()
        changed = replace(self.status, state=state, reason=reason, share=share)
        if changed != self.status:
            self.status = changed
            self._on_change(changed)


def backoff(failures: int, settings: FleetSettings, rng: Random) -> float:
    """Seconds until the next try after so many failures before this one, drawn so that backends
    which were lost together do not come back together."""
    longest = min(settings.backoff_first * 2.0 ** min(failures, 32), settings.backoff_max)
    return longest * rng.uniform(0.5, 1.0)
