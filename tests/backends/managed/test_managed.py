"""Engines are started, watched, restarted and ended to their last process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from backends.managed.flags import NodeFlag
from backends.managed.node import ManagedNode, NotBack
from backends.managed.process import PortTaken, check_port
from backends.managed.supervisor import ManagedSettings, command_line
from backends.plans.model import Engine, Flag, Plan, Variable
from bench.demo import free_port
from tests.backends.scripted import start

STAND_IN = (sys.executable, str(Path(__file__).with_name("engine.py")))


def settings(*options: str, **more: float) -> ManagedSettings:
    quick = {"grace": 5.0, "backoff_first": 0.02, "backoff_max": 0.05}
    return ManagedSettings(command=(*STAND_IN, *options), **(quick | more))


def engine(name: str = "e", **more: object) -> Engine:
    return Engine(name=name, model="m", classes=("short",), port=free_port(), **more)  # type: ignore[arg-type]


class Said:
    """What the engines wrote."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append(f"{name}: {line}")

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    async def until(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.count(text) < times:  # noqa: ASYNC110 - another process brings it about
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(plan: Plan, options: ManagedSettings) -> AsyncIterator[tuple[ManagedNode, Said]]:
    said = Said()
    async with ManagedNode(plan, options, said) as node:
        yield node, said
    assert all(managed.pid is None for managed in node.engines.values())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed process that its new parent has not reaped yet is dead, too.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Gate:
    """Notes when requests are kept away from an engine, and what then was running."""

    def __init__(self, refuse: str | None = None) -> None:
        self.seen: list[str] = []
        self.refuse = refuse

    async def leave(self, name: str) -> None:
        self.seen.append(f"leave {name}")

    async def enter(self, name: str) -> None:
        if name == self.refuse:
            raise NotBack(name)
        self.seen.append(f"enter {name}")


async def test_an_engine_gets_its_command_line_and_environment_and_its_lines_are_told() -> None:
    wanted = engine(
        flags=(Flag("max-num-seqs", 3, ""), Flag("enforce-eager", True, "")),
        environment=(Variable("MARK", "here", ""),),
    )
    async with running(Plan((wanted,)), settings()) as (node, said):
        await said.until("e: listening")
        assert "e: given --model m --max-num-seqs 3 --enforce-eager with here" in said.lines
        assert max(map(len, said.lines)) < 40_010, "a line without end is told in parts"
        (spec,) = node.specs()
        assert (spec.name, spec.limit, spec.classes) == ("e", 3, frozenset(("short",)))
        assert spec.url == f"http://127.0.0.1:{wanted.port}"


def test_vllm_serve_takes_the_model_by_position() -> None:
    serve = ManagedSettings(command=("vllm", "serve"), host="h")
    assert command_line(replace(engine(), port=7), serve) == (
        *("vllm", "serve", "m", "--host", "h", "--port", "7"),
    )


async def test_an_engine_that_ends_is_started_again_with_a_backoff() -> None:
    async with running(Plan((engine(),)), settings()) as (node, said):
        await said.until("listening")
        managed = node.engines["e"]
        assert managed.pid is not None
        os.kill(managed.pid, signal.SIGKILL)
        await said.until("ended with status -9; starting again in 0.0 s")
        await said.until("listening", times=2)
        assert managed.starts == 2


async def test_an_engine_that_always_ends_is_not_started_in_a_tight_loop() -> None:
    slow = settings("--crash", backoff_first=0.2, backoff_max=10)
    async with running(Plan((engine(),)), slow) as (node, said):
        await said.until("ended with status 3")
        began = asyncio.get_running_loop().time()
        await said.until("ended with status 3", times=4)
        assert asyncio.get_running_loop().time() - began > (0.2 + 0.4 + 0.8) / 2
        assert said.count("started as process") == node.engines["e"].starts


async def test_an_engine_that_ends_again_and_again_is_given_up_until_it_is_restarted() -> None:
    quick = settings("--crash", backoff_first=0.01, backoff_max=0.01)
    async with running(Plan((engine(),)), quick) as (node, said):
        node.check("e")
        await said.until("ended with status 3", times=2)
        assert node.engines["e"].failures >= 2
        await said.until("ended with status 3", times=3)
        with pytest.raises(NotBack, match="e has ended by itself"):
            node.check("e")
        await node.engines["e"].restart()
        node.check("e")


async def test_one_engine_is_restarted_with_another_value_of_a_flag() -> None:
    other = replace(engine(), name="f", port=free_port())
    flagged = engine().with_flag(Flag("gpu-memory-utilization", 0.85, "the plan"))
    async with running(Plan((flagged, other)), settings()) as (node, said):
        await said.until("listening", times=2)
        gate = Gate()
        flag = NodeFlag(node, gate, "gpu-memory-utilization")
        assert flag.values() == {"e": 0.85}
        await flag.restart("e", 0.8, "the rule")
        await said.until("e: given --model m --gpu-memory-utilization 0.8 with")
        assert flag.values() == {"e": 0.8}
        assert gate.seen == ["leave e", "enter e"]
        assert node.engines["f"].starts == 1


async def test_nothing_of_the_group_stays_when_its_first_process_dies(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    async with running(Plan((engine(),)), settings("--child", str(mark))) as (node, said):
        await said.until("listening")
        child, pid = int(mark.read_text()), node.engines["e"].pid
        assert alive(child)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await gone(child)


async def test_an_engine_does_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """The supervisor is a process of its own here, and dies without a word."""
    mark = tmp_path / "child"
    owner = f"""
import asyncio, sys
from backends.managed.process import EngineProcess

async def main():
    command = {[*STAND_IN, "--stubborn", "--child", str(mark), "--host", "127.0.0.1"]!r}
    command += ["--port", "{free_port()}"]
    tell = lambda line: print(line, flush=True)
    engine = await EngineProcess.start(command, {{}}, tell, grace=0.3)
    await engine.ended()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", owner, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        while (await process.stdout.readline()) != b"listening\n":
            pass
    child = int(mark.read_text())
    assert alive(child)
    process.kill()
    await process.communicate()
    await gone(child)


async def test_an_engine_that_will_not_end_is_killed_with_its_group(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    options = settings("--stubborn", "--child", str(mark), grace=0.3)
    began = asyncio.get_running_loop().time()
    async with running(Plan((engine(),)), options) as (_, said):
        await said.until("listening")
        child = int(mark.read_text())
        began = asyncio.get_running_loop().time()
    assert 0.3 <= asyncio.get_running_loop().time() - began < 5
    await gone(child)


async def test_a_port_that_something_answers_on_is_refused_before_anything_starts() -> None:
    first, second = engine("one"), engine("two")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", second.port)
    said = Said()
    async with server:
        with pytest.raises(PortTaken, match=str(second.port)):
            async with ManagedNode(Plan((first, second)), settings(), said):
                raise AssertionError("it began")
    assert said.lines == []
    await check_port("127.0.0.1", second.port)


async def test_a_port_that_is_taken_meanwhile_is_waited_for() -> None:
    wanted = engine()
    async with running(Plan((wanted,)), settings(backoff_first=0.3)) as (node, said):
        await said.until("listening")
        pid = node.engines["e"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await said.until("ended with status")
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", wanted.port
        )
        async with server:
            await said.until("cannot start: something answers")
        await said.until("listening", times=2)


async def test_what_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    options = replace(settings(), command=(str(script),))
    async with running(Plan((engine(),)), options) as (_, said):
        await said.until("cannot start: [Errno 2]")
        await said.until("ended with status 127; starting again")
        text = f'#!/bin/sh\nexec {" ".join(STAND_IN)} "$@"\n'
        script.write_text(text)
        script.chmod(0o755)
        await said.until("listening")


async def test_stopping_waits_for_no_backoff() -> None:
    slow = settings("--crash", backoff_first=60, backoff_max=60)
    async with asyncio.timeout(20), running(Plan((engine(),)), slow) as (_, said):
        await said.until("starting again in")


async def test_a_block_that_fails_leaves_no_engine() -> None:
    said = Said()
    with suppress(RuntimeError):
        async with ManagedNode(Plan((engine(),)), settings(), said) as node:
            await said.until("listening")
            pid = node.engines["e"].pid
            raise RuntimeError
    assert pid is not None
    assert not alive(pid)


# One after the other


async def test_a_rolling_restart_takes_one_engine_at_a_time_through_the_gate() -> None:
    gate = Gate()
    async with running(Plan((engine("one"), engine("two"))), settings()) as (node, said):
        await said.until("one: listening")
        await said.until("two: listening")
        before = {name: managed.pid for name, managed in node.engines.items()}
        await node.roll(gate)
        assert gate.seen == ["leave one", "enter one", "leave two", "enter two"]
        await said.until("one: listening", times=2)
        await said.until("two: listening", times=2)
        assert all(before[name] != managed.pid for name, managed in node.engines.items())
        assert said.count("starting again in") == 0, "a wanted restart needs no backoff"


async def test_a_new_plan_restarts_what_it_changes() -> None:
    one, two = engine("one"), engine("two")
    gate = Gate()
    async with running(Plan((one, two)), settings()) as (node, said):
        await said.until("two: listening")
        changed = replace(two, flags=(Flag("max-num-seqs", 5, ""),))
        await node.roll(gate, Plan((one, changed)))
        assert gate.seen == ["leave two", "enter two"]
        await said.until("two: given --model m --max-num-seqs 5")
        assert node.engines["two"].engine.limit == 5
        with pytest.raises(ValueError, match="other engines or ports"):
            await node.roll(gate, Plan((one,)))
        with pytest.raises(ValueError, match="other engines or ports"):
            await node.roll(gate, Plan((one, replace(changed, port=1))))


async def test_an_engine_that_does_not_come_back_stops_the_roll() -> None:
    gate = Gate(refuse="one")
    async with running(Plan((engine("one"), engine("two"))), settings()) as (node, said):
        await said.until("two: listening")
        pid = node.engines["two"].pid
        with pytest.raises(NotBack):
            await node.roll(gate)
        assert gate.seen == ["leave one"]
        assert node.engines["two"].pid == pid, "the others run as they did"


async def test_an_engine_that_waits_to_be_started_again_is_restarted_at_once() -> None:
    slow = settings("--crash", backoff_first=60, backoff_max=60)
    async with running(Plan((engine(),)), slow) as (node, said):
        await said.until("starting again in")
        await start(node.engines["e"].restart())
        await said.until("started as process", times=2)
