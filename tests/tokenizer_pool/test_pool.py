"""The pool with real processes: the same answers in every place, whatever comes and goes."""

import asyncio
import json
import os
import signal
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from tests.tokenizer_pool.bodies import LONG, chat, sockets
from tests.tokenizer_pool.conftest import EMBEDDED, running_pool
from tokenizer_pool.errors import InvalidRequest, TokenizerUnavailable
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import CacheReport, Kind, PoolSettings, TokenizerSource

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(cache_dir: Path, embedded_artifact: Path) -> AsyncIterator[TokenizerPool]:
    """A pool as it is by default, shared by the tests of this file, in their order."""
    async with running_pool(PoolSettings(cache_dir)) as pool:
        yield pool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def distant(cache_dir: Path, embedded_artifact: Path) -> AsyncIterator[TokenizerPool]:
    """A pool that prepares nothing in place and remembers nothing."""
    settings = PoolSettings(cache_dir, inline_max_bytes=0, segment_cache_bytes=0)
    async with running_pool(settings) as pool:
        yield pool


async def test_a_body_gets_the_same_answer_on_the_loop_and_in_a_worker(
    pool: TokenizerPool, distant: TokenizerPool
) -> None:
    before = pool.report().inline
    for kind, body in (
        (Kind.CHAT, chat("Zürich 今天", stream=True, max_tokens=3)),
        (Kind.COMPLETION, b'{"model":"m","prompt":"once"}'),
        (Kind.CHAT, LONG),
    ):
        assert await pool.prepare(kind, body) == await distant.prepare(kind, body)
    assert (pool.report().inline - before, distant.report().inline) == (2, 0)
    assert distant.report().lanes[0].done >= 3


async def test_errors_are_the_same_on_the_loop_and_in_a_worker(
    pool: TokenizerPool, distant: TokenizerPool
) -> None:
    for body in (b"{", chat(model="unknown"), chat(max_tokens="x")):
        errors = []
        for place in (pool, distant):
            with pytest.raises(InvalidRequest) as error:
                await place.prepare(Kind.CHAT, body)
            errors.append((error.value.message, error.value.param, error.value.code))
        assert errors[0] == errors[1]
    assert errors[0][1] == "max_tokens"
    with pytest.raises(InvalidRequest) as unknown:
        await pool.prepare(Kind.CHAT, chat(model="unknown"))
    assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")


async def test_models_come_and_go_while_the_pool_works(pool: TokenizerPool) -> None:
    # The only model needs no name.
    prompt = await pool.prepare(Kind.CHAT, chat(model=None))
    assert json.loads(prompt.body(ids=False))["model"] == "m"
    (before,) = pool.worker_pids()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        await pool.add_text_model("text")
    with pytest.raises(InvalidRequest):
        await pool.prepare(Kind.CHAT, chat(model=None))
    (renewed,) = pool.worker_pids()
    assert renewed != before
    # A worker holds no socket but its own.
    assert sockets(renewed) == 1
    large = chat("x" * 20_000, model="text")
    for body in (chat(model="text"), large):
        assert (await pool.prepare(Kind.CHAT, body)).ineligible == "no tokenizer"
    await pool.remove_model("text")
    for body in (chat(model="text"), large):
        with pytest.raises(InvalidRequest):
            await pool.prepare(Kind.CHAT, body)
    with pytest.raises(TokenizerUnavailable):
        await pool.add_model(TokenizerSource("x", "/no/such/directory"))
    assert [model.model for model in pool.report().models] == ["m"]


async def test_a_model_that_comes_while_others_are_served_stops_nobody(cache_dir: Path) -> None:
    lull = 0.3
    async with running_pool(PoolSettings(cache_dir, lull=lull)) as pool:
        await pool.prepare(Kind.CHAT, chat())
        assert pool.report().inline == 1
        # The loop is in use: it may not be held up for loading a tokenizer, nor for freeing one.
        await pool.add_model(TokenizerSource("more", EMBEDDED))
        await pool.remove_model("m")
        want = await pool.prepare(Kind.CHAT, chat(model="more"))
        assert pool.report().inline == 1
        assert [lane.name for lane in pool.report().lanes] == ["long", "short"]
        async with asyncio.timeout(20):
            while pool.report().inline == 1:
                await asyncio.sleep(2 * lull)  # the lull that it waits for
                assert await pool.prepare(Kind.CHAT, chat(model="more")) == want


async def test_a_model_is_loaded_in_the_end_where_there_is_never_a_pause(cache_dir: Path) -> None:
    settings = PoolSettings(cache_dir, lull=60.0, lull_patience=0.5)
    async with running_pool(settings) as pool, asyncio.timeout(20):
        await pool.prepare(Kind.CHAT, chat())
        await pool.add_model(TokenizerSource("more", EMBEDDED))
        while pool.report().inline == 1:
            await pool.prepare(Kind.CHAT, chat(model="more"))


async def test_what_was_large_is_given_back_as_soon_as_it_is_prepared(pool: TokenizerPool) -> None:
    body = memoryview(LONG)
    kept = weakref.ref(body)
    await pool.prepare(Kind.CHAT, cast("bytes", body))
    del body
    assert kept() is None


async def test_tokenize_runs_in_a_worker(pool: TokenizerPool) -> None:
    tokens = await pool.tokenize(b'{"model":"m","prompt":"once upon"}')
    assert tokens.model == "m"
    assert len(json.loads(tokens.ids)) == tokens.count > 0
    assert tokens.strings is None
    named = await pool.tokenize(b'{"model":"m","prompt":"once upon","return_token_strs":true}')
    assert len(json.loads(named.strings or b"")) == tokens.count
    body = b'{"model":"m","tokens":%b}' % tokens.ids
    assert json.loads(await pool.detokenize(body)) == {"prompt": "once upon"}


async def test_a_chat_that_grows_is_encoded_once(
    pool: TokenizerPool, distant: TokenizerPool
) -> None:
    before = pool.report().lanes[0].cache
    turns = [{"role": "user", "content": f"turn {n} " * 400} for n in range(12)]
    for size in (10, 11, 12):
        body = json.dumps({"model": "m", "messages": turns[:size]}).encode()
        assert await pool.prepare(Kind.CHAT, body) == await distant.prepare(Kind.CHAT, body)
    cache = pool.report().lanes[0].cache - before
    assert cache.hit_bytes > 20 * 400 * len("turn 0 ")
    assert cache.hits >= 20
    # What a worker saved is counted on when another takes its place.
    os.kill(pool.worker_pids()[0], signal.SIGKILL)
    await pool.prepare(Kind.CHAT, body)
    later = pool.report().lanes[0].cache - before
    assert later.miss_bytes > cache.miss_bytes
    assert later.hits >= cache.hits
    assert distant.report().lanes[0].cache == CacheReport()
    await pool.prepare(Kind.CHAT, chat())
    await pool.prepare(Kind.CHAT, chat())
    assert pool.report().inline_cache.hits > 0


async def test_a_worker_that_dies_is_replaced_and_its_work_done(pool: TokenizerPool) -> None:
    want = await pool.prepare(Kind.CHAT, LONG)
    (pid,) = pool.worker_pids()
    os.kill(pid, signal.SIGKILL)
    assert await pool.prepare(Kind.CHAT, LONG) == want
    assert pool.worker_pids() != (pid,)


async def test_a_model_with_a_reference_engine_has_a_short_lane_of_its_own(
    pool: TokenizerPool, slow_template_dir: Path
) -> None:
    assert [lane.name for lane in pool.report().lanes] == ["long"]
    report = await pool.add_model(TokenizerSource("slow", slow_template_dir))
    assert (report.encode_engine, report.template_engine) == ("fastokens", "jinja2")
    assert any("minijinja cannot compile" in note for note in report.notes)
    prompt = await pool.prepare(Kind.CHAT, chat("pool", model="slow"))
    assert prompt.ineligible is None
    _, short = pool.report().lanes
    assert (short.name, short.done) == ("short", 1)
    # What the loop may not decide for the fast model goes there as well.
    await pool.prepare(Kind.CHAT, chat(chat_template_kwargs={"x": [1]}))
    assert pool.report().lanes[1].done == 2
