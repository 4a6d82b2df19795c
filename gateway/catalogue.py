"""Finds out which models there are, where, and in which channel each backend gets their prompts.

The fleet says what each server serves and whether it uses ids that it is given; the tokenizer
pool makes ids. Here the two are brought together: ids go to a backend only when the pool's are
proved to be what that backend itself would have made (`parity`), and only for prompts of sizes for
which they are the faster way (`meter`). Until that is settled the scheduler sees the backend as
warming. The request path reads the outcome in `directory`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from backends.types import BackendStatus, Capabilities, Channel, ServedModel, State
from gateway.bands import Band, ChannelChoice, pinned
from gateway.config import Config
from gateway.directory import Directory, Row, Standing
from gateway.meter import Ask, Meter
from gateway.parity import Tokenize, compare
from gateway.settings import scheduler_backend
from scheduler.events import BackendChanged, BackendRemoved
from scheduler.model import Backend
from tokenizer_pool.errors import TokenizerUnavailable, WorkerFailed
from tokenizer_pool.types import Kind, ModelReport, TokenizedPrompt, TokenizerSource, TokenList

log = logging.getLogger("forebay.catalogue")


Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]

POOL_AGAIN = 1.0
"""Seconds before a model is handed again to a pool whose workers failed."""


class Tokenizers(Protocol):
    """What the catalogue needs of the tokenizer pool, or of several processes' pools together."""

    async def add_model(self, source: TokenizerSource) -> ModelReport: ...

    async def add_text_model(self, model: str) -> ModelReport: ...

    async def tokenize(self, body: bytes) -> TokenList: ...

    async def prepare(self, kind: Kind, body: bytes) -> TokenizedPrompt: ...


@dataclass(frozen=True, slots=True)
class Questions:
    """What a backend is asked: its own `/tokenize`, how long a request takes it, and at last, by
    every process that serves requests, what users will ask."""

    tokenize: Tokenize
    time: Ask
    rehearse: Callable[[str, Row], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class _Entry:
    """`rounds` counts how often it was settled; `refreshing` waits to time its channels again."""

    status: BackendStatus
    settling: Capabilities | None = None
    settled: Capabilities | None = None
    standings: dict[str, Standing] = field(default_factory=dict)
    rounds: int = 0
    refreshing: asyncio.Task[None] | None = None

    def refresh_by(self, task: asyncio.Task[None] | None) -> None:
        """One waits at a time; the one that has just had its turn ends by itself."""
        if self.refreshing is not None and self.refreshing is not asyncio.current_task():
            self.refreshing.cancel()
        self.refreshing = task

    @property
    def state(self) -> State:
        """The backend's state, with READY kept back until its channels are settled."""
        unsettled = self.settled is not self.status.capabilities
        return (
            State.WARMING if unsettled and self.status.state is State.READY else self.status.state
        )


class Catalogue:
    """Follows the fleet; tells the scheduler and `directory`.

    `published` is called with the name of each backend whose row in the directory is new.
    """

    def __init__(
        self,
        config: Config,
        pool: Tokenizers,
        *,
        questions: Questions,
        apply: Callable[[BackendChanged | BackendRemoved], None],
        published: Callable[[str], None],
        spawn: Spawn,
    ) -> None:
        self.directory = Directory(config.backends)
        self._config = config
        self._pool = pool
        self._tokenize = questions.tokenize
        self._meter = Meter(pool, questions.time)
        self._apply = apply
        self._published = published
        self._rehearse = questions.rehearse
        self._spawn = spawn
        self._entries: dict[str, _Entry] = {}
        self._unavailable: dict[str, str] = {}
        self._distrusted: dict[tuple[str, str], str] = {}
        self._known: set[str] = set()
        self._adding = asyncio.Lock()

    # what the fleet and the operator tell

    def status_changed(self, status: BackendStatus) -> None:
        name, found = status.spec.name, status.capabilities
        entry = self._entries.setdefault(name, _Entry(status))
        entry.status = status
        if found is not None and found is not entry.settling:
            entry.settling = found
            self._spawn(f"settle-{name}", self._settle(entry, found))
        self._announce(entry)

    def removed(self, backend: str) -> None:
        """It is gone from the fleet: no request, and nobody who asks, hears of it any more."""
        if (entry := self._entries.pop(backend, None)) is not None:
            entry.refresh_by(None)
            self.directory.remove(backend)
            self._published(backend)
            self._apply(BackendRemoved(backend))

    def reconfigure(self, config: Config) -> None:
        """Put changed limits, weights and classes in force, and another choice of the channel.

        That choice also clears what the watchdog holds against backends: they are judged anew.
        """
        chosen = config.tokenizer.channel is not self._config.tokenizer.channel
        self._config = config
        if chosen:
            self._distrusted.clear()
        for entry in self._entries.values():
            if chosen and entry.settled is not None and entry.settling is entry.settled:
                self._spawn(f"settle-{entry.status.spec.name}", self._settle(entry, entry.settled))
            self._announce(entry)

    def relimit(self, config: Config, backends: Iterable[str]) -> None:
        """Put changed limits of these backends in force, and nothing else."""
        self._config = config
        for name in backends:
            entry = self._entries.get(name)
            if entry is not None:
                self._apply(BackendChanged(scheduler_backend(config, entry.status, entry.state)))

    def distrust(self, backend: str, model: str, reason: str) -> None:
        """Send a backend's prompts for a model as text, also when it is proved again.

        Another choice of the channel by an operator clears it, or a restart of the gateway.
        """
        entry = self._entries.get(backend)
        if entry is None:  # it was removed while its last answers came
            return
        log.error("backend %s, model %s: text from now on: %s", backend, model, reason)
        self._distrusted[backend, model] = reason
        entry.standings = entry.standings | {model: _by_text(reason)}
        self._announce(entry)

    # what people ask

    def state(self, backend: str) -> State | None:
        entry = self._entries.get(backend)
        return None if entry is None else entry.state

    def as_ready(self, backend: str) -> Backend | None:
        """The backend as the scheduler will see it; None for one that is gone."""
        entry = self._entries.get(backend)
        if entry is None:
            return None
        return scheduler_backend(self._config, entry.status, State.READY)

    def standings(self, backend: str) -> Mapping[str, Standing]:
        entry = self._entries.get(backend)
        return {} if entry is None else entry.standings

    # the rest

    def _served(self) -> Iterator[ServedModel]:
        for entry in self._entries.values():
            if entry.status.capabilities is not None:
                yield from entry.status.capabilities.models

    def _announce(self, entry: _Entry) -> None:
        backend = scheduler_backend(self._config, entry.status, entry.state)
        spec, found = entry.status.spec, entry.status.capabilities
        models = found.models if found else ()
        row = Row(spec, entry.state is State.READY, models, entry.standings)
        self.directory.put(spec.name, row)
        self._published(spec.name)
        self._apply(BackendChanged(backend))

    async def _settle(self, entry: _Entry, found: Capabilities) -> None:
        """Settle the channels of each model; a newer probe's findings make this one's void."""
        standings: dict[str, Standing] = {}
        # Base models first: adapters share their frontend, and with it what is the faster way.
        for model in sorted(found.models, key=lambda each: each.parent is not None):
            standings[model.name] = await self._stand(entry, found, model, standings)
        backend = entry.status.spec.name
        if entry.settled is not found:
            row = Row(entry.status.spec, True, found.models, standings)
            # A task of its own: if it fails, that is told, and the backend gets ready all the same.
            await asyncio.wait({self._spawn(f"rehearsal-{backend}", self._rehearse(backend, row))})
        if entry.settling is not found or self._entries.get(backend) is not entry:
            return
        entry.settled, entry.standings = found, standings
        entry.rounds += 1
        for model_name, standing in standings.items():
            line = "backend %s, model %s: chat by %s, completions by %s: %s"
            log.info(line, backend, model_name, *map(_told, Kind, [standing] * 2), standing.reason)
        self._announce(entry)
        if self._config.tokenizer.channel is ChannelChoice.AUTO and Channel.IDS in (
            found.chat, found.completions
        ):  # fmt: skip
            entry.refresh_by(self._spawn(f"channels-{backend}", self._refresh(entry, found)))

    async def _refresh(self, entry: _Entry, found: Capabilities) -> None:
        """After a while, time the channels again, while it is still the server that was proved."""
        this = entry.rounds
        await asyncio.sleep(self._config.tokenizer.channel_refresh)
        if entry.rounds == this and entry.settled is found:
            await self._settle(entry, found)

    async def _stand(
        self,
        entry: _Entry,
        found: Capabilities,
        model: ServedModel,
        settled: Mapping[str, Standing],
    ) -> Standing:
        backend = entry.status.spec.name
        reason = await self._add_tokenizer(model) or self._distrusted.get((backend, model.name))
        if reason is None:
            reason = await compare(self._pool, self._tokenize, backend, model.name)
        if reason is not None:
            return _by_text(reason)
        base = settled.get(model.parent or "")
        if base is None:
            bands = [
                await self._bands(backend, model, kind, proved)
                for kind, proved in ((Kind.CHAT, found.chat), (Kind.COMPLETION, found.completions))
            ]
        else:
            bands = [base.chat_bands, base.completion_bands]
        # The watchdog may have spoken meanwhile.
        reason = self._distrusted.get((backend, model.name))
        notes = "; ".join(found.notes) or "ids proved equal to the backend's own"
        standing = Standing(found.chat, found.completions, notes, *bands)
        return standing if reason is None else _by_text(reason)

    async def _bands(
        self, backend: str, model: ServedModel, kind: Kind, proved: Channel
    ) -> tuple[Band, ...]:
        choice = self._config.tokenizer.channel
        if proved is Channel.TEXT:
            return ()
        if choice is not ChannelChoice.AUTO:
            return pinned(Channel(choice.value))
        return await self._meter.bands(backend, model.name, kind, model.max_model_len)

    async def _add_tokenizer(self, model: ServedModel) -> str | None:
        """Load a model's tokenizer once; returns why it cannot be had, if so."""
        async with self._adding:
            if model.name not in self._known:
                self._known.add(model.name)
                source = TokenizerSource(model.name, self._location(model))
                try:
                    report = await self._pool.add_model(source)
                    engines = report.encode_engine, report.template_engine
                    log.info("%s: %s, %s: %s", model.name, *engines, "; ".join(report.notes))
                except TokenizerUnavailable as error:
                    log.warning(
                        "no tokenizer for %s, its prompts go as text: %s", model.name, error
                    )
                    self._unavailable[model.name] = f"no tokenizer: {error}"
                    await self._add_as_text(model.name)
        return self._unavailable.get(model.name)

    async def _add_as_text(self, model: str) -> None:
        """Its backends wait for this: a pool that cannot even take a name is tried again."""
        while True:
            try:
                await self._pool.add_text_model(model)
            except WorkerFailed as error:
                log.warning("%s has to wait for the tokenizer workers: %s", model, error)
                await asyncio.sleep(POOL_AGAIN)
            else:
                return

    def _location(self, model: ServedModel) -> str:
        """Where the tokenizer is: as configured, else the base model's root, else its own."""
        configured = self._config.tokenizer.sources.get(model.name)
        if configured is not None:
            return configured
        base = next((m for m in self._served() if m.name == model.parent), model)
        return base.root


def _by_text(reason: str) -> Standing:
    return Standing(Channel.TEXT, Channel.TEXT, reason)


def _told(kind: Kind, standing: Standing) -> str:
    """`ids`, `text`, or both where it depends on the size."""
    return " or ".join(sorted(channel.value for channel in standing.channels(kind)))
