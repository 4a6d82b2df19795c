"""The pool with real processes: same answers in every place, and nothing that hurts spreads."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_pool.conftest import EMBEDDED, MakePool, Spawn, write_tokenizer
from tokenizer_pool import requests
from tokenizer_pool.artifact import load_model, read_artifact
from tokenizer_pool.errors import InvalidRequest, PoolBusy, TokenizerUnavailable, WorkerFailed
from tokenizer_pool.extract import barriers
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import CacheReport, Kind, PoolSettings, TokenizerSource


def chat(content: str = "hello", model: str | None = "m", **fields: Any) -> bytes:
    document = {"messages": [{"role": "user", "content": content}], **fields}
    if model is not None:
        document["model"] = model
    return json.dumps(document).encode()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - processes send no events
            await asyncio.sleep(0.01)


def running(pid: int | str) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    # Nobody may be there to reap it.
    return "State:\tZ" not in status


def sockets(pid: int) -> int:
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(link.startswith("socket:") for link in links)


LONG = chat("many words upstream of the turbines " * 1000)


async def test_a_body_gets_the_same_answer_on_the_loop_and_in_a_worker(
    make_pool: MakePool,
) -> None:
    inline, worker = await make_pool(), await make_pool(inline_max_bytes=0)
    for kind, body in (
        (Kind.CHAT, chat("Zürich 今天", stream=True, max_tokens=3)),
        (Kind.COMPLETION, b'{"model":"m","prompt":"once"}'),
        (Kind.CHAT, LONG),
    ):
        assert await inline.prepare(kind, body) == await worker.prepare(kind, body)
    assert (inline.report().inline, worker.report().inline) == (2, 0)
    assert worker.report().lanes[0].done >= 3


async def test_errors_are_the_same_on_the_loop_and_in_a_worker(make_pool: MakePool) -> None:
    inline, worker = await make_pool(), await make_pool(inline_max_bytes=0)
    for body in (b"{", chat(model="unknown"), chat(max_tokens="x")):
        errors = []
        for pool in (inline, worker):
            with pytest.raises(InvalidRequest) as error:
                await pool.prepare(Kind.CHAT, body)
            errors.append((error.value.message, error.value.param, error.value.code))
        assert errors[0] == errors[1]
    assert errors[0][1] == "max_tokens"
    with pytest.raises(InvalidRequest) as unknown:
        await inline.prepare(Kind.CHAT, chat(model="unknown"))
    assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")


async def test_the_only_model_needs_no_name(make_pool: MakePool) -> None:
    pool = await make_pool()
    prompt = await pool.prepare(Kind.CHAT, chat(model=None))
    assert json.loads(prompt.body(ids=False))["model"] == "m"
    await pool.add_text_model("other")
    with pytest.raises(InvalidRequest):
        await pool.prepare(Kind.CHAT, chat(model=None))


async def test_models_come_and_go_while_the_pool_works(make_pool: MakePool) -> None:
    pool = await make_pool()
    await pool.add_text_model("text")
    assert (await pool.prepare(Kind.CHAT, chat(model="text"))).ineligible == "no tokenizer"
    large = chat("x" * 20_000, model="text")
    assert (await pool.prepare(Kind.CHAT, large)).ineligible == "no tokenizer"
    await pool.remove_model("text")
    for body in (chat(model="text"), large):
        with pytest.raises(InvalidRequest):
            await pool.prepare(Kind.CHAT, body)
    assert [model.model for model in pool.report().models] == ["m"]


async def test_a_model_with_a_reference_engine_has_a_short_lane_of_its_own(
    make_pool: MakePool, slow_template_dir: Path
) -> None:
    pool = await make_pool()
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


async def test_tokenize_runs_in_a_worker(make_pool: MakePool) -> None:
    pool = await make_pool()
    tokens = await pool.tokenize(b'{"model":"m","prompt":"once upon"}')
    assert tokens.model == "m"
    assert len(json.loads(tokens.ids)) == tokens.count > 0
    assert tokens.strings is None
    named = await pool.tokenize(b'{"model":"m","prompt":"once upon","return_token_strs":true}')
    assert len(json.loads(named.strings or b"")) == tokens.count
    body = b'{"model":"m","tokens":%b}' % tokens.ids
    assert json.loads(await pool.detokenize(body)) == {"prompt": "once upon"}


async def test_a_chat_that_grows_is_encoded_once(make_pool: MakePool) -> None:
    pool, cold = await make_pool(), await make_pool(segment_cache_bytes=0)
    turns = [{"role": "user", "content": f"turn {n} " * 400} for n in range(12)]
    for size in (10, 11, 12):
        body = json.dumps({"model": "m", "messages": turns[:size]}).encode()
        assert await pool.prepare(Kind.CHAT, body) == await cold.prepare(Kind.CHAT, body)
    cache = pool.report().lanes[0].cache
    assert cache.hit_bytes > 20 * 400 * len("turn 0 ")
    assert cache.hits >= 20
    # What a worker saved is counted on when another takes its place.
    os.kill(pool.worker_pids()[0], signal.SIGKILL)
    await pool.prepare(Kind.CHAT, body)
    assert pool.report().lanes[0].cache.miss_bytes > cache.miss_bytes
    assert pool.report().lanes[0].cache.hits >= cache.hits
    assert cold.report().lanes[0].cache == CacheReport()
    await pool.prepare(Kind.CHAT, chat())
    await pool.prepare(Kind.CHAT, chat())
    assert pool.report().inline_cache.hits > 0


async def test_a_worker_that_dies_is_replaced_and_its_work_done(make_pool: MakePool) -> None:
    pool = await make_pool()
    want = await pool.prepare(Kind.CHAT, LONG)
    (pid,) = pool.worker_pids()
    os.kill(pid, signal.SIGKILL)
    assert await pool.prepare(Kind.CHAT, LONG) == want
    assert pool.worker_pids() != (pid,)


async def test_a_worker_that_hangs_costs_its_request_and_no_more(make_pool: MakePool) -> None:
    pool = await make_pool(job_timeout=0.3)
    await pool.prepare(Kind.CHAT, LONG)
    (hung,) = pool.worker_pids()
    os.kill(hung, signal.SIGSTOP)
    prompt = await pool.prepare(Kind.CHAT, LONG)
    assert prompt.prompt_tokens > 1000
    assert hung not in pool.worker_pids()


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


async def test_a_lane_is_bounded_in_bytes_too(make_pool: MakePool) -> None:
    pool = await make_pool(queue_bytes=1000)
    with pytest.raises(PoolBusy):
        await pool.prepare(Kind.CHAT, LONG)


async def test_a_worker_that_grew_too_large_is_replaced(make_pool: MakePool) -> None:
    pool = await make_pool(worker_memory=1)
    before = pool.worker_pids()
    await pool.prepare(Kind.CHAT, LONG)
    await until(lambda: pool.worker_pids() != before)
    assert (await pool.prepare(Kind.CHAT, LONG)).exact


async def test_stopping_ends_every_worker_and_what_waits(
    cache_dir: Path, spawn: Spawn, embedded_artifact: Path
) -> None:
    pool = TokenizerPool(PoolSettings(cache_dir=cache_dir), spawn)
    await pool.start()
    await pool.add_model(TokenizerSource("m", EMBEDDED))
    (pid,) = pool.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_fails(pool)) for _ in range(2)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGCONT)
        await pool.stop()
    assert all(task.done() for task in tasks)
    assert not running(pid)


async def _fails(pool: TokenizerPool) -> None:
    with pytest.raises(WorkerFailed):
        await pool.prepare(Kind.CHAT, LONG)


async def test_a_worker_holds_no_socket_but_its_own(make_pool: MakePool) -> None:
    pool = await make_pool()
    (pid,) = pool.worker_pids()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        await pool.add_text_model("renews the worker")
        (renewed,) = pool.worker_pids()
        assert renewed != pid
        assert sockets(renewed) == 1


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


async def test_a_model_without_tokenizer_is_told_apart(
    make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await make_pool()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for location, message in (
        ("/no/such/directory", "not a directory on this machine"),
        ("nobody/nothing", "HF_HUB_OFFLINE is set"),
        (tmp_path, "tokenizer"),
    ):
        with pytest.raises(TokenizerUnavailable, match=message):
            await pool.add_model(TokenizerSource("x", location))
    assert [model.model for model in pool.report().models] == ["m"]


async def test_a_hub_id_is_taken_from_the_local_cache(
    make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / "abc").symlink_to(EMBEDDED)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    pool = await make_pool()
    report = await pool.add_model(TokenizerSource("hub", "org/name"))
    assert report.vocabulary == pool.report().models[0].vocabulary


async def test_an_artifact_is_made_once_and_anew_when_a_source_changes(
    tmp_path: Path, spawn: Spawn
) -> None:
    directory = write_tokenizer(tmp_path / "model")
    cache = tmp_path / "cache"
    source = TokenizerSource("m", directory)
    first = await artifact_path(source, cache, limit=60)
    stamp = (first / "artifact.json").stat().st_mtime_ns
    assert await artifact_path(source, cache, limit=60) == first
    assert (first / "artifact.json").stat().st_mtime_ns == stamp
    write_tokenizer(directory, {"default": "{{ messages[0].content }}", "tool_use": "tools"})
    second = await artifact_path(source, cache, limit=60)
    assert second != first
    assert read_artifact(second).templates["tool_use"] == "tools"
    assert sorted(cache.iterdir()) == sorted((first, second))
    model = load_model("m", second, on_loop=False)
    tools = [{"type": "function", "function": {"name": "f"}}]
    plain = model.prepare(Kind.CHAT, requests.parse(chat("pool"), Kind.CHAT))
    with_tools = model.prepare(Kind.CHAT, requests.parse(chat("x", tools=tools), Kind.CHAT))
    assert plain.ids != with_tools.ids
    # A plain prompt begins with the tokenizer's own first token, a chat only when asked to.
    prompts = [
        model.prepare(Kind.COMPLETION, requests.parse(b'{"prompt":"pool"}', Kind.COMPLETION)),
        model.prepare(Kind.CHAT, requests.parse(chat("pool", add_special_tokens=True), Kind.CHAT)),
    ]
    assert {prompt.prompt_tokens for prompt in prompts} == {plain.prompt_tokens + 1}


@pytest.mark.parametrize(
    ("config", "files", "reasons"),
    [
        ({"model_type": "llama"}, [], (None, None)),
        ({"model_type": "gpt_oss"}, [], ("harmony", None)),
        ({"architectures": ["DeepseekV32ForCausalLM"]}, [], ("deepseek_v32", None)),
        ({}, ["tekken.json"], (None, None)),
        ({}, ["tekken.json", "consolidated-1.safetensors"], ("mistral", "mistral")),
    ],
)
def test_models_that_vllm_renders_by_its_own_code_go_as_text(
    tmp_path: Path, config: Any, files: list[str], reasons: tuple[str | None, str | None]
) -> None:
    for name in files:
        (tmp_path / name).touch()
    for barrier, reason in zip(barriers(tmp_path, config), reasons, strict=True):
        assert (barrier is None) if reason is None else (reason in str(barrier))
