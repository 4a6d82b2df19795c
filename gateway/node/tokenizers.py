"""The tokenizer pools of a node taken together: the brain's own, which only answers the parity
check's questions, and one in each relay process, which prepare the requests."""

from collections.abc import Awaitable, Callable, Iterable
from functools import reduce

from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import (
    CacheReport,
    Kind,
    LaneReport,
    ModelReport,
    PoolReport,
    TokenizedPrompt,
    TokenizerSource,
    TokenList,
)


class NodeTokenizers:
    """`load(model, location)` has every relay process load a model, and waits for it."""

    def __init__(
        self, own: TokenizerPool, load: Callable[[str, str | None], Awaitable[None]]
    ) -> None:
        self._own = own
        self._load = load

    async def add_model(self, source: TokenizerSource) -> ModelReport:
        """Raises TokenizerUnavailable. First here, which extracts it for all the others."""
        report = await self._own.add_model(source)
        await self._load(source.model, str(source.location))
        return report

    async def add_text_model(self, model: str) -> ModelReport:
        report = await self._own.add_text_model(model)
        await self._load(model, None)
        return report

    async def tokenize(self, body: bytes) -> TokenList:
        return await self._own.tokenize(body)

    async def prepare(self, kind: Kind, body: bytes) -> TokenizedPrompt:
        return await self._own.prepare(kind, body)


def together(own: PoolReport, others: Iterable[PoolReport]) -> PoolReport:
    """One report of all: the models as the brain has them, the lanes' counts added up by name."""
    reports = [own, *others]
    lanes: dict[str, LaneReport] = {}
    for lane in (lane for report in reports for lane in report.lanes):
        known = lanes.get(lane.name)
        lanes[lane.name] = lane if known is None else _sum(known, lane)
    return PoolReport(
        models=own.models,
        lanes=tuple(lanes.values()),
        inline=sum(report.inline for report in reports),
        inline_cache=reduce(
            CacheReport.__add__, (report.inline_cache for report in reports), CacheReport()
        ),
    )


def _sum(one: LaneReport, other: LaneReport) -> LaneReport:
    return LaneReport(
        name=one.name,
        workers=one.workers + other.workers,
        wanted=one.wanted + other.wanted,
        queued=one.queued + other.queued,
        queued_bytes=one.queued_bytes + other.queued_bytes,
        done=one.done + other.done,
        restarts=one.restarts + other.restarts,
        cache=one.cache + other.cache,
    )
