"""Several relay processes around one brain: exact limits, one's death, one node's figures."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.config import Config
from gateway.node.node import Node
from gateway.node.relays import Pace
from tests.integration.conftest import StartEngine
from tests.integration.parts import MODEL, running_command

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
ENDLESS = BODY | {"stream": True, "max_tokens": 2000, "ignore_eos": True}


@dataclass
class RunningNode:
    """A node of two relay processes and a client that opens a connection for each request."""

    node: Node
    port: int
    session: aiohttp.ClientSession

    def url(self, path: str = "/v1/chat/completions") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def ask(self, body: dict[str, Any] = BODY) -> int:
        async with self.session.post(self.url(), json=body) as answer:
            await answer.read()
            return answer.status

    async def page(self, path: str) -> str:
        async with self.session.get(self.url(path)) as answer:
            return await answer.text()

    def in_flight(self) -> int:
        return sum(backend.in_flight for backend in self.node.driver.snapshot().backends)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait for a condition that other processes bring about."""
        async with asyncio.timeout(20):
            while not (held if isinstance(held := condition(), bool) else await held):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running_node(cache_dir: Path, **settings: Any) -> AsyncIterator[RunningNode]:
    own = {
        "port": 0,
        "tokenizer": {"cache_dir": cache_dir, "channel": "ids"},
        "warm": {"requests": 2},
    }
    pace = Pace(interval=0.1, timeout=1.0, silences=3)
    node = Node(Config.model_validate(own | settings), 2, pace)
    one_each = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=one_each) as session:
        try:
            running = RunningNode(node, await node.start(), session)
            await running.until(node.status.all_ready)
            yield running
        finally:
            await node.stop()
    assert node.tasks.failed == 0
    assert len(node.tasks) == 0
    assert running.in_flight() == 0


StartNode = Callable[..., Awaitable[RunningNode]]


@pytest.fixture
async def start_node(cache_dir: Path) -> AsyncIterator[StartNode]:
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> RunningNode:
            return await stack.enter_async_context(running_node(cache_dir, **settings))

        yield start


def served(node: Node) -> list[int]:
    """How many prompts each relay process has prepared, as they last told."""
    return [report.inline for report in node.reports.values()]


async def test_a_backends_limit_is_exact_over_all_processes(
    start_engine: StartEngine, start_node: StartNode
) -> None:
    # The engine itself refuses what is too much; the limit is reached, and never passed.
    engine = await start_engine("--step-ms", "2", "--max-num-queued-reqs", "8")
    running = await start_node(backends={"only": {"url": engine.url, "limit": 8}})
    most = 0

    async def flood() -> list[int]:
        asks = (running.ask(BODY | {"max_tokens": 5}) for _ in range(200))
        return await asyncio.gather(*asks)

    flooding = running.node.tasks.spawn("flood", flood())
    while not flooding.done():
        most = max(most, running.in_flight())
        await asyncio.sleep(0)
    assert set(await flooding) == {200}
    assert most == 8
    page = await running.page("/metrics")
    counted = [line for line in page.splitlines() if line.startswith("forebay_requests_total{")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in counted) == 200
    assert min(served(running.node)) > 50, "both processes had their share"


async def test_a_killed_process_takes_only_its_own_requests_along(
    start_engine: StartEngine, start_node: StartNode
) -> None:
    engine = await start_engine("--step-ms", "20")
    running = await start_node(backends={"only": {"url": engine.url, "limit": 40}})
    node = running.node
    begun = asyncio.Event()
    streaming = 0

    async def stream() -> bool:
        """Whether the stream was whole."""
        nonlocal streaming
        try:
            async with running.session.post(running.url(), json=ENDLESS) as answer:
                await answer.content.readany()
                streaming += 1
                begun.set()
                await answer.read()
        except aiohttp.ClientError:
            return False
        return True

    streams = [node.tasks.spawn("stream", stream()) for _ in range(24)]
    await running.until(lambda: streaming == 24)
    assert running.in_flight() == 24
    victim = node.relays.pids()[0]
    before = node.relays.names()
    os.kill(victim, signal.SIGKILL)
    await running.until(lambda: any(each.done() for each in streams))
    await running.until(lambda: 0 < running.in_flight() == sum(not s.done() for s in streams))
    assert running.in_flight() < 24

    async def engine_agrees() -> bool:
        return (await engine.counts())["vllm:num_requests_running"] == running.in_flight()

    await running.until(engine_agrees)
    await running.until(lambda: len(node.relays.names()) == 2 and node.relays.names() != before)
    await running.until(lambda: all(each in node.reports for each in node.relays.names()))

    async def both_serve() -> bool:
        assert {await running.ask(BODY | {"max_tokens": 1}) for _ in range(8)} == {200}
        return min(served(node)) > 0

    await running.until(both_serve)
    assert not all(each.done() for each in streams), "the other one's streams have gone on"
    for each in streams:
        each.cancel()
    await asyncio.gather(*streams, return_exceptions=True)


async def test_a_process_that_hangs_is_replaced(
    start_engine: StartEngine, start_node: StartNode
) -> None:
    engine = await start_engine()
    running = await start_node(backends={"only": {"url": engine.url}})
    relays = running.node.relays
    before, victim = relays.names(), relays.pids()[0]
    os.kill(victim, signal.SIGSTOP)
    await running.until(lambda: len(relays.names()) == 2 and relays.names() != before)
    assert victim not in relays.pids()
    await running.until(lambda: set(relays.names()) == set(running.node.reports))
    assert {await running.ask(BODY | {"max_tokens": 1}) for _ in range(16)} == {200}


async def test_the_node_tells_one_story_whichever_process_is_asked(
    start_engine: StartEngine, start_node: StartNode
) -> None:
    engine = await start_engine()
    running = await start_node(backends={"only": {"url": engine.url}})

    def all_lanes_run() -> bool:
        """Until then what a process says of itself changes."""
        lanes = running.node.brain.status.tokenizers().lanes
        told = set(running.node.relays.names()) == set(running.node.reports)
        return told and all(lane.workers == lane.wanted for lane in lanes)

    await running.until(all_lanes_run)
    for path, part in (("/ready", '"all_ready": true'), ("/v1/models", MODEL)):
        pages = {await running.page(path) for _ in range(8)}
        assert len(pages) == 1
        assert part in pages.pop()
    unknown = BODY | {"model": "nobody's"}
    assert {await running.ask(unknown) for _ in range(8)} == {404}


async def test_the_command_with_two_workers_drains_and_leaves_no_process(
    start_engine: StartEngine, cache_dir: Path
) -> None:
    engine = await start_engine("--step-ms", "20")
    async with (
        running_command(cache_dir, engine, "--workers", "2") as command,
        aiohttp.ClientSession() as session,
    ):
        url = f"http://127.0.0.1:{command.port}/v1/chat/completions"
        children = command.children()
        assert len(children) >= 3, "two relay processes and a tokenizer worker"
        async with session.post(url, json=ENDLESS | {"max_tokens": 40}) as answer:
            assert answer.status == 200
            command.process.send_signal(signal.SIGTERM)
            assert (await answer.text()).endswith("data: [DONE]\n\n")
        assert await asyncio.wait_for(command.process.wait(), 20) == 0
    assert not any(alive(child) for child in children)


async def test_relay_processes_end_when_the_brain_is_killed(
    start_engine: StartEngine, cache_dir: Path
) -> None:
    engine = await start_engine()
    async with running_command(cache_dir, engine, "--workers", "2") as command:
        children = command.children()
    async with asyncio.timeout(20):
        while any(alive(child) for child in children):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def alive(pid: str) -> bool:
    """Whether the process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
