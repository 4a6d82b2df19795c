"""Nothing that hurts one request spreads: hung and killed workers, full lanes, dead parents."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_pool.bodies import LONG, chat, running, until
from tests.tokenizer_pool.conftest import MakePool, running_pool
from tokenizer_pool.errors import PoolBusy, WorkerFailed
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind, PoolSettings, TokenizerSource


async def test_a_worker_that_hangs_costs_its_request_and_no_more(make_pool: MakePool) -> None:
    pool = await make_pool(job_timeout=0.3)
    await pool.prepare(Kind.CHAT, LONG)
    (hung,) = pool.worker_pids()
    os.kill(hung, signal.SIGSTOP)
    prompt = await pool.prepare(Kind.CHAT, LONG)
    assert prompt.prompt_tokens > 1000
    assert hung not in pool.worker_pids()


@pytest.mark.slow
async def test_a_request_that_hangs_every_worker_fails_alone(
    make_pool: MakePool, slow_template_dir: Path
) -> None:
    pool = await make_pool(job_timeout=0.5)
    await pool.add_model(TokenizerSource("slow", slow_template_dir))
    hangs = asyncio.create_task(pool.prepare(Kind.CHAT, chat("hang", model="slow")))  # noqa: TID251
    for _ in range(3):
        assert (await pool.prepare(Kind.CHAT, LONG)).exact
    with pytest.raises(WorkerFailed):
        await hangs
    assert (await pool.prepare(Kind.CHAT, chat("fine", model="slow"))).exact


async def test_a_full_lane_refuses_before_any_work(make_pool: MakePool) -> None:
    pool = await make_pool(queue_limit=2, job_timeout=60)
    before = pool.report().lanes[0].done
    (pid,) = pool.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    waiting: list[asyncio.Task[Any]] = []
    async with asyncio.TaskGroup() as group:
        waiting.append(group.create_task(pool.prepare(Kind.CHAT, LONG)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pool.report().lanes[0].queued == 0
        for _ in range(2):
            waiting.append(group.create_task(pool.prepare(Kind.CHAT, LONG)))
            await asyncio.sleep(0)
        assert pool.report().lanes[0].queued == 2
        assert pool.report().lanes[0].queued_bytes > 2 * len(LONG)
        with pytest.raises(PoolBusy) as busy:
            await pool.prepare(Kind.CHAT, LONG)
        assert busy.value.retry_after > 0
        # Small bodies do not wait behind them, and a client that leaves makes room.
        assert (await pool.prepare(Kind.CHAT, chat())).exact
        waiting[1].cancel()
        os.kill(pid, signal.SIGCONT)
    assert [task.cancelled() for task in waiting] == [False, True, False]
    assert pool.report().lanes[0].queued_bytes == 0
    # Nothing was done for the client that left.
    assert pool.report().lanes[0].done == before + 2


async def test_a_lane_is_bounded_in_bytes_too(make_pool: MakePool) -> None:
    pool = await make_pool(queue_bytes=1000)
    with pytest.raises(PoolBusy):
        await pool.prepare(Kind.CHAT, LONG)


async def test_a_worker_that_grew_too_large_is_replaced(make_pool: MakePool) -> None:
    ballast = b"x" * (384 << 20)  # a large gateway must not hide how small its worker was
    pool = await make_pool(worker_memory=8 << 20)
    del ballast
    before = pool.worker_pids()
    for _ in range(20):
        await pool.prepare(Kind.CHAT, LONG)
    assert pool.worker_pids() == before
    await pool.prepare(Kind.CHAT, chat("turbine " * 1_000_000))
    await until(lambda: pool.worker_pids() != before)
    assert (await pool.prepare(Kind.CHAT, LONG)).exact


async def test_stopping_while_a_worker_is_replaced_leaves_no_process(
    cache_dir: Path, embedded_artifact: Path
) -> None:
    async with running_pool(PoolSettings(cache_dir, worker_memory=8 << 20)) as pool:
        (old,) = pool.worker_pids()
        await pool.prepare(Kind.CHAT, chat("turbine " * 1_000_000))
        os.kill(old, signal.SIGSTOP)  # so that it cannot end by itself when it is let go
        await until(lambda: pool.worker_pids() != (old,))
    assert not running(old)


async def test_stopping_ends_every_worker_and_what_waits(
    cache_dir: Path, embedded_artifact: Path
) -> None:
    async with asyncio.TaskGroup() as group, running_pool(PoolSettings(cache_dir)) as pool:
        (pid,) = pool.worker_pids()
        os.kill(pid, signal.SIGSTOP)
        tasks = [group.create_task(_fails(pool)) for _ in range(2)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGCONT)
    assert all(task.done() for task in tasks)
    assert not running(pid)


async def _fails(pool: TokenizerPool) -> None:
    with pytest.raises(WorkerFailed):
        await pool.prepare(Kind.CHAT, LONG)


PARENT = """
import asyncio, sys
from pathlib import Path
from tokenizer_pool.extract import barriers
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import CacheReport, Kind, PoolSettings, TokenizerSource

async def main():
    start = asyncio.get_running_loop().create_task
    pool = TokenizerPool(PoolSettings(cache_dir=Path(sys.argv[1])), lambda n, c: start(c))
    await pool.start()
    await pool.add_model(TokenizerSource("slow", sys.argv[2]))
    print(*pool.worker_pids(), flush=True)
    body = '{"messages": [{"role": "user", "content": "hang"}]}'.encode()
    await pool.prepare(Kind.CHAT, body)

asyncio.run(main())
"""


def killed_parent(cache_dir: Path, model: Path) -> list[str]:
    """The workers of a process that was killed while one of them was busy."""
    command = [sys.executable, "-c", PARENT, str(cache_dir), str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = parent.stdout.readline().split()
        parent.kill()
    return pids


async def test_no_worker_outlives_its_parent(cache_dir: Path, slow_template_dir: Path) -> None:
    pids = await asyncio.to_thread(killed_parent, cache_dir, slow_template_dir)
    assert len(pids) == 2
    await until(lambda: not any(map(running, pids)))
