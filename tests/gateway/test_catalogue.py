"""A backend becomes ready although the tokenizer pool had its troubles when it came."""

import asyncio

import pytest

from backends.types import BackendSpec, BackendStatus, Capabilities, ServedModel, State
from gateway import catalogue
from gateway.catalogue import Catalogue, Questions
from gateway.config import Config
from gateway.directory import Row
from gateway.tasks import Tasks
from scheduler.events import BackendChanged, BackendRemoved
from scheduler.model import BackendState
from tokenizer_pool.errors import TokenizerUnavailable, WorkerFailed
from tokenizer_pool.types import Kind, ModelReport, TokenizedPrompt, TokenizerSource, TokenList

SPEC = BackendSpec("a", "http://127.0.0.1:9")
FOUND = Capabilities("0.32", (ServedModel("m", "nowhere", 4096),))


class Pool:
    """Has no tokenizer for any model, and workers that fail as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def add_model(self, source: TokenizerSource) -> ModelReport:
        raise TokenizerUnavailable(f"no files for {source.model}")

    async def add_text_model(self, model: str) -> ModelReport:
        if self.failures:
            self.failures -= 1
            raise WorkerFailed("the request ended 2 long tokenizer workers")
        return ModelReport(model, "none", "none", 0, "", "")

    async def tokenize(self, body: bytes) -> TokenList:
        raise AssertionError("there is no tokenizer")

    async def prepare(self, kind: Kind, body: bytes) -> TokenizedPrompt:
        raise AssertionError("there is no tokenizer")


async def _nothing(*_: object) -> None:
    raise AssertionError("nobody is asked about a model without a tokenizer")


async def _rehearse(*_: object) -> None:
    pass


@pytest.mark.parametrize("failures", [0, 1])
async def test_workers_that_fail_once_only_delay_a_backend(failures: int) -> None:
    ready = asyncio.Event()

    def apply(event: BackendChanged | BackendRemoved) -> None:
        if isinstance(event, BackendChanged) and event.backend.state is BackendState.READY:
            ready.set()

    tasks, pool = Tasks(), Pool(failures)
    tested = Catalogue(
        Config.model_validate({"backends": {"a": {"url": SPEC.url}}}),
        pool,
        questions=Questions(_nothing, _nothing, _rehearse),  # type: ignore[arg-type]
        apply=apply,
        published=lambda _: None,
        spawn=tasks.spawn,
    )
    assert tested.state("a") is None
    tested.status_changed(BackendStatus(SPEC, State.READY, FOUND, ""))
    assert tested.state("a") is State.WARMING
    async with asyncio.timeout(10 * catalogue.POOL_AGAIN):
        await ready.wait()
    assert tested.directory.rows["a"].ready
    assert tested.standings("a")["m"].reason == "no tokenizer: no files for m"
    assert (pool.failures, tasks.failed) == (0, 0)
    await tasks.stop()


async def test_a_backend_is_ready_after_its_rehearsal_however_that_ended() -> None:
    order: list[str] = []
    ready = asyncio.Event()

    async def rehearse(backend: str, row: Row) -> None:
        order.append(f"{backend} rehearses, ready {row.ready}, by {row.standings['m'].chat.value}")
        raise RuntimeError("a rehearsal went wrong")

    def apply(event: BackendChanged | BackendRemoved) -> None:
        if isinstance(event, BackendChanged) and event.backend.state is BackendState.READY:
            order.append("ready")
            ready.set()

    tasks = Tasks()
    tested = Catalogue(
        Config.model_validate({"backends": {"a": {"url": SPEC.url}}}),
        Pool(0),
        questions=Questions(_nothing, _nothing, rehearse),  # type: ignore[arg-type]
        apply=apply,
        published=lambda _: None,
        spawn=tasks.spawn,
    )
    tested.status_changed(BackendStatus(SPEC, State.READY, FOUND, ""))
    async with asyncio.timeout(5):
        await ready.wait()
    assert order == ["a rehearses, ready True, by text", "ready"]
    assert tasks.failed == 1, "what went wrong is told"
    known = tested.as_ready("a")
    assert known is not None
    assert known.state is BackendState.READY
    assert tested.as_ready("b") is None
    await tasks.stop()
