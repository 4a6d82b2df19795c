"""The tokenizer pool: the package's front door.

Decides where a body is prepared (in place, or in which lane) and knows the models. Tokenizing is
`model`, worker processes are `lane`, finding tokenizers is `source`.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from tokenizer_pool import shapes
from tokenizer_pool.artifact import load_model, read_artifact, report
from tokenizer_pool.chat import NeedsReference
from tokenizer_pool.eligibility import NO_TOKENIZER
from tokenizer_pool.engines import EngineUnavailable
from tokenizer_pool.errors import InvalidRequest, TokenizerUnavailable, WorkerFailed
from tokenizer_pool.lane import Lane, Reply, Spawn
from tokenizer_pool.lull import Lull
from tokenizer_pool.media import may_have_media
from tokenizer_pool.model import Model
from tokenizer_pool.registry import resolve
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import (
    CacheReport,
    Kind,
    ModelReport,
    PoolReport,
    PoolSettings,
    TokenizedPrompt,
    TokenizerSource,
    TokenList,
    Wanted,
)

_BOTH: Final = Wanted()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A registered model: `inline` only where it may be prepared on the event loop."""

    report: ModelReport
    path: Path | None
    inline: Model | None

    @property
    def needs_short_lane(self) -> bool:
        return self.inline is None


class TokenizerPool:
    """Bodies in, ready prompts out; see PoolSettings for what is done where."""

    def __init__(self, settings: PoolSettings, spawn: Spawn) -> None:
        """`spawn(name, coroutine)` starts a supervised task; the pool starts none otherwise."""
        self._settings = settings
        self._long = Lane("long", settings.workers, settings, spawn)
        self._short = Lane("short", settings.short_workers, settings, spawn)
        self._media = Lane("media", settings.media_workers, settings, spawn)
        self._entries: dict[str, _Entry] = {}
        self._aliases: Mapping[str, str] = {}
        self._changing = asyncio.Lock()
        self._inline = 0
        self._spawn = spawn
        self._lull = Lull(settings.lull, settings.lull_patience)
        self._later: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the long lane; the short lane opens when a model needs it."""
        self._long.start()

    async def stop(self) -> None:
        """End all workers; what is waiting fails with WorkerFailed."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        await asyncio.gather(*(lane.stop() for lane in (self._long, self._short, self._media)))

    async def add_model(self, source: TokenizerSource) -> ModelReport:
        """Register a model, or replace it; returns when every worker can serve it.

        The first time costs seconds (extraction and parity), later a second or less. While others
        are served, the model is served by worker processes alone, until the next lull. Raises
        TokenizerUnavailable, also when no worker could load it.
        """
        settings = self._settings
        path = await artifact_path(source, settings.cache_dir, limit=settings.extract_timeout)
        artifact = read_artifact(path)
        inline = None
        in_place = artifact.fast and settings.inline_max_bytes > 0
        # Without a model nobody can have been served: whoever asks already, waits for this one.
        if in_place and (self._lull.now or not self._entries):
            try:
                inline = await asyncio.to_thread(self._load, source.model, path)
            except EngineUnavailable as error:
                raise TokenizerUnavailable(f"{source.model!r}: {error}") from error
        entry = _Entry(report(artifact, source.model), path, inline)
        try:
            await self._change({source.model: entry})
        except WorkerFailed as error:
            raise TokenizerUnavailable(f"{source.model!r}: {error}") from error
        if in_place and inline is None:
            self._do_later(self._adopt(source.model, entry, path))
        return entry.report

    async def add_text_model(self, model: str) -> ModelReport:
        """Register a model whose tokenizer cannot be had: its requests go as text.

        Counts are estimates from bytes, `exact` is False.
        """
        reason = NO_TOKENIZER.reason
        entry = _Entry(
            ModelReport(model, "none", "none", 0, reason, reason), path=None, inline=Model(model)
        )
        await self._change({model: entry})
        return entry.report

    async def remove_model(self, model: str) -> None:
        """Forget a model; unknown names are fine."""
        await self._change({}, without=model)

    def call(self, aliases: Mapping[str, str]) -> None:
        """Let these be other names of models from now on; what goes upstream has the real ones."""
        self._aliases = dict(aliases)

    async def prepare(
        self, kind: Kind, body: bytes, *, trusted: bool = False, wanted: Wanted = _BOTH
    ) -> TokenizedPrompt:
        """Validate, count and assemble a request, in the forms that are wanted.

        Fields that a client may not steer are taken out unless `trusted`. Raises InvalidRequest,
        PoolBusy or WorkerFailed.
        """
        self._lull.used()
        if len(body) <= self._settings.inline_max_bytes:
            document = shapes.parse(body, kind, trusted=trusted, aliases=self._aliases)
            model = resolve(self._entries, document).inline
            if model is not None:
                try:
                    prompt = shapes.prepare(model, kind, document, wanted)
                except NeedsReference:
                    pass
                else:
                    self._inline += 1
                    return prompt
        order = {"do": "prepare", "kind": kind.value, "trusted": trusted, "wanted": wanted}
        meaning, (text, ids) = await self._submit(order, body)
        meaning["prefix"] = tuple(meaning["prefix"])
        meaning["media"] = tuple((kind, number) for kind, number in meaning["media"])
        return TokenizedPrompt(**meaning, text=text, ids=ids)

    async def tokenize(self, body: bytes) -> TokenList:
        """The ids of a `/tokenize` body (`prompt` or `messages`), as vLLM's endpoint has them.

        Raises InvalidRequest (also for what we cannot render exactly), PoolBusy, WorkerFailed.
        """
        meaning, (ids, *strings) = await self._submit({"do": "tokenize"}, body)
        return TokenList(**meaning, ids=ids, strings=strings[0] if strings else None)

    async def detokenize(self, body: bytes) -> bytes:
        """The answer to a `/detokenize` body, `{"prompt": ...}`, as vLLM's endpoint has it.

        Raises InvalidRequest, PoolBusy, WorkerFailed.
        """
        _, (answer,) = await self._submit({"do": "detokenize"}, body)
        return answer

    def report(self) -> PoolReport:
        """Models with their engines and why, lanes, and how many bodies were done in place."""
        extra = [lane.report() for lane in (self._short, self._media) if lane.started]
        encoders = (e.inline.encoder for e in self._entries.values() if e.inline is not None)
        caches = (encoder.cache_report() for encoder in encoders if encoder is not None)
        return PoolReport(
            models=tuple(entry.report for entry in self._entries.values()),
            lanes=(self._long.report(), *extra),
            inline=self._inline,
            inline_cache=sum(caches, CacheReport()),
        )

    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of all running workers."""
        lanes = (self._long, self._short, self._media)
        return tuple(pid for lane in lanes for pid in lane.worker_pids())

    def _load(self, name: str, path: Path) -> Model:
        cache_bytes = self._settings.segment_cache_bytes
        return load_model(name, path, on_loop=True, cache_bytes=cache_bytes)

    def _do_later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._spawn("tokenizer-lull", coroutine)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _adopt(self, name: str, entry: _Entry, path: Path) -> None:
        """Serve a model in place, too, once loading it stops nobody."""
        await self._lull.wait()
        inline = await asyncio.to_thread(self._load, name, path)
        async with self._changing:
            if self._entries.get(name) is entry:
                self._entries[name] = replace(entry, inline=inline)

    async def _release(self, gone: list[Model]) -> None:
        """Free models that nobody can ask for any more, once that stops nobody."""
        await self._lull.wait()
        gone.clear()

    async def _change(self, added: dict[str, _Entry], without: str | None = None) -> None:
        async with self._changing:
            entries = {name: e for name, e in self._entries.items() if name != without} | added
            catalog = {name: entry.path for name, entry in entries.items()}
            await self._long.serve(catalog)
            needed = any(entry.needs_short_lane for entry in entries.values())
            if needed and self._settings.inline_max_bytes and not self._short.started:
                self._short.start()
            for lane in (self._short, self._media):
                if lane.started:
                    await lane.serve(catalog)
            kept = {id(entry.inline) for entry in entries.values()}
            gone = [e.inline for e in self._entries.values() if id(e.inline) not in kept]
            self._entries = entries
        if held := [model for model in gone if model is not None and model.encoder is not None]:
            self._do_later(self._release(held))

    async def _submit(self, order: Mapping[str, object], body: bytes) -> Reply:
        if self._aliases:
            order = {**order, "aliases": self._aliases}
        lane = await self._lane_for(body)
        meaning, payload = await lane.submit([orjson.dumps(order), body])
        if "invalid" in meaning:
            raise InvalidRequest(meaning["invalid"], param=meaning["param"], code=meaning["code"])
        return meaning, payload

    async def _lane_for(self, body: bytes) -> Lane:
        """Media are megabytes of one JSON string: no text waits behind them."""
        if len(body) <= self._settings.inline_max_bytes:
            return self._short if self._short.started else self._long
        if not await may_have_media(body):
            return self._long
        async with self._changing:
            if not self._media.started:
                self._media.start()
                await self._media.serve({name: e.path for name, e in self._entries.items()})
        return self._media
