"""Finds out which models there are, where, and in which channel each backend gets their prompts.

The fleet says what each server serves and whether it uses ids that it is given; the tokenizer
pool makes ids. Here the two are brought together: ids go to a backend only when the pool's are
proved to be what that backend itself would have made (`parity`). Until that is settled the
scheduler sees the backend as warming. The request path reads the outcome in `directory`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from backends.types import BackendStatus, Capabilities, Channel, ServedModel, State
from gateway.config import Config
from gateway.directory import Directory, Row, Standing
from gateway.parity import Tokenize, compare
from gateway.settings import scheduler_backend
from scheduler.events import BackendChanged, BackendRemoved
from tokenizer_pool.errors import TokenizerUnavailable
from tokenizer_pool.types import ModelReport, TokenizerSource, TokenList

log = logging.getLogger("forebay.catalogue")


Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class Tokenizers(Protocol):
    """What the catalogue needs of the tokenizer pool, or of several processes' pools together."""

    async def add_model(self, source: TokenizerSource) -> ModelReport: ...

    async def add_text_model(self, model: str) -> ModelReport: ...

    async def tokenize(self, body: bytes) -> TokenList: ...


@dataclass(slots=True)
class _Entry:
    status: BackendStatus
    settling: Capabilities | None = None
    settled: Capabilities | None = None
    standings: dict[str, Standing] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The backend's state, with READY kept back until its channels are settled."""
        unsettled = self.settled is not self.status.capabilities
        return (
            State.WARMING if unsettled and self.status.state is State.READY else self.status.state
        )


class Catalogue:
    """Follows the fleet; tells the scheduler and `directory`.

    `tokenize` asks a backend's own `/tokenize`; `published` is called with the name of each
    backend whose row in the directory is new.
    """

    def __init__(
        self,
        config: Config,
        pool: Tokenizers,
        *,
        tokenize: Tokenize,
        apply: Callable[[BackendChanged | BackendRemoved], None],
        published: Callable[[str], None],
        spawn: Spawn,
    ) -> None:
        self.directory = Directory(config.backends)
        self._config = config
        self._pool = pool
        self._tokenize = tokenize
        self._apply = apply
        self._published = published
        self._spawn = spawn
        self._entries: dict[str, _Entry] = {}
        self._unavailable: dict[str, str] = {}
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
        if self._entries.pop(backend, None) is not None:
            self.directory.remove(backend)
            self._published(backend)
            self._apply(BackendRemoved(backend))

    def reconfigure(self, config: Config) -> None:
        """Put changed limits, weights and classes in force."""
        self._config = config
        for entry in self._entries.values():
            self._announce(entry)

    def distrust(self, backend: str, model: str, reason: str) -> None:
        """Send a backend's prompts for a model as text until the backend is proved again."""
        entry = self._entries.get(backend)
        if entry is None:  # it was removed while its last answers came
            return
        log.error("backend %s, model %s: text from now on: %s", backend, model, reason)
        entry.standings = entry.standings | {model: Standing(Channel.TEXT, Channel.TEXT, reason)}
        self._announce(entry)

    # what people ask

    def state(self, backend: str) -> State | None:
        entry = self._entries.get(backend)
        return None if entry is None else entry.state

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
        """Settle the channel of each model; a newer probe's findings make this one's void."""
        standings = {m.name: await self._stand(entry, found, m) for m in found.models}
        backend = entry.status.spec.name
        if entry.settling is not found or self._entries.get(backend) is not entry:
            return
        entry.settled, entry.standings = found, standings
        for model, standing in standings.items():
            line = "backend %s, model %s: chat by %s, completions by %s: %s"
            channels = standing.chat.value, standing.completions.value
            log.info(line, entry.status.spec.name, model, *channels, standing.reason)
        self._announce(entry)

    async def _stand(self, entry: _Entry, found: Capabilities, model: ServedModel) -> Standing:
        reason = await self._add_tokenizer(model)
        if reason is None:
            backend = entry.status.spec.name
            reason = await compare(self._pool, self._tokenize, backend, model.name)
        if reason is None:
            notes = "; ".join(found.notes) or "ids proved equal to the backend's own"
            return Standing(found.chat, found.completions, notes)
        return Standing(Channel.TEXT, Channel.TEXT, reason)

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
                    await self._pool.add_text_model(model.name)
        return self._unavailable.get(model.name)

    def _location(self, model: ServedModel) -> str:
        """Where the tokenizer is: as configured, else the base model's root, else its own."""
        configured = self._config.tokenizer.sources.get(model.name)
        if configured is not None:
            return configured
        base = next((m for m in self._served() if m.name == model.parent), model)
        return base.root
