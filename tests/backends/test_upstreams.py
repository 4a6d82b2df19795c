"""The clients of one process come and go with the backends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from backends.client import ClientLimits
from backends.errors import BackendError, ConnectFailed
from backends.types import BackendSpec, Timeouts
from backends.upstreams import Upstreams
from tests.backends.clients import CHUNKED, answering, ask, body_of, silent, sized
from tests.backends.scripted import serving, start, until, unused_port


class Told:
    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []
        self.failures: list[tuple[str, BackendError]] = []

    def answer(self, name: str, status: int) -> None:
        self.answers.append((name, status))

    def failure(self, name: str, error: BackendError) -> None:
        self.failures.append((name, error))


@asynccontextmanager
async def upstreams(limits: ClientLimits | None = None) -> AsyncIterator[tuple[Upstreams, Told]]:
    before = len(asyncio.all_tasks())
    told = Told()
    made = Upstreams(
        limits or ClientLimits(),
        lambda _, coro: start(coro),
        on_answer=told.answer,
        on_failure=told.failure,
    )
    try:
        yield made, told
    finally:
        await made.stop()
        await until(lambda: len(asyncio.all_tasks()) == before)


async def test_answers_are_told_with_the_backend_s_name() -> None:
    async with serving(answering(sized(b"x"))) as served, upstreams() as (made, told):
        client = made.add(served.spec("b7"))
        await body_of(await ask(client))
        assert told.answers == [("b7", 200)]
        assert made.client("b7") is client
        assert made.names() == ("b7",)


async def test_a_name_is_taken_once_and_an_address_must_be_one() -> None:
    async with upstreams() as (made, _):
        made.add(BackendSpec("a", "http://h"))
        with pytest.raises(ValueError, match="same name"):
            made.add(BackendSpec("a", "http://i"))
        with pytest.raises(ValueError, match="not http"):
            made.add(BackendSpec("b", "ftp://i"))


async def test_a_removed_backend_finishes_what_it_has_and_gets_nothing_new() -> None:
    pieces = CHUNKED, b"1\r\na\r\n", b"0\r\n\r\n"
    async with serving(answering(*pieces)) as served, upstreams() as (made, _):
        stream = await ask(made.add(served.spec()))
        removing = start(made.remove("b1", 10))
        await until(lambda: made.names() == ())
        with pytest.raises(ConnectFailed, match="removed"):
            made.client("b1")
        assert await body_of(stream) == b"a"
        assert await removing
        assert await made.remove("b1", 10), "it is gone already"


async def test_removal_does_not_wait_for_ever() -> None:
    async with serving(silent) as served, upstreams() as (made, _):
        asking = start(ask(made.add(served.spec())))
        await served.peer()
        assert not await made.remove("b1", 0.05)
        with pytest.raises(BackendError):
            await asking


async def test_exactly_the_given_backends_stay() -> None:
    async with AsyncExitStack() as stack:
        old, new, other = [
            await stack.enter_async_context(serving(answering(sized(text))))
            for text in (b"old", b"new", b"other")
        ]
        made, _ = await stack.enter_async_context(upstreams())
        made.apply([old.spec("a"), other.spec("b")], within=1)
        kept = made.client("b")
        assert await body_of(await ask(made.client("a"))) == b"old"
        made.apply([new.spec("a"), other.spec("b", weight=7), other.spec("c")], within=1)
        assert made.names() == ("b", "a", "c")
        assert made.client("b") is kept
        assert await body_of(await ask(made.client("a"))) == b"new"
        made.apply([], within=1)
        assert made.names() == ()


async def test_connections_are_kept_for_the_backends_that_are_ready_only() -> None:
    quick = ClientLimits(idle=0.1, spare=2)
    async with serving(silent) as served, upstreams(quick) as (made, _):
        client = made.add(served.spec())
        made.keep_ready("b1", ready=True)
        made.keep_ready("b1", ready=True)
        made.keep_ready("nobody", ready=True)
        await until(lambda: client.connects >= 4)
        made.keep_ready("b1", ready=False)
        await until(lambda: "idle=0" in repr(client))
        connects = client.connects
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await until(lambda: client.connects > connects)


async def test_a_backend_that_cannot_be_connected_to_is_told_of() -> None:
    quick = ClientLimits(idle=0.02, spare=1)
    async with upstreams(quick) as (made, told):
        made.add(BackendSpec("b1", f"http://127.0.0.1:{unused_port()}"))
        made.keep_ready("b1", ready=True)
        await until(lambda: len(told.failures) >= 2)
        assert told.failures[0][0] == "b1"
        assert isinstance(told.failures[0][1], ConnectFailed)


async def test_stopping_ends_also_what_is_being_removed() -> None:
    async with serving(silent) as served, upstreams() as (made, _):
        asking = start(made.add(served.spec()).open("/x", b"", timeouts=Timeouts()))
        await served.peer()
        made.apply([], within=60)
        await until(lambda: made.names() == ())
        await made.stop()
        with pytest.raises(BackendError):
            await asking
