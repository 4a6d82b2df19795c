"""`forebay up`: a plan's engines and the gateway in front, from start to the last process's end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bench.demo import free_port
from tests.integration.parts import MODEL, ended_at_last
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


class Up:
    """A running `forebay up`, its output, and what answers."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.output = ""

    async def read(self) -> None:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(65_536):
            self.output += data.decode()

    async def until(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(60):
            while self.output.count(text) < times:
                assert self.process.returncode is None, self.output
                await asyncio.sleep(0.02)

    async def ready(self, session: aiohttp.ClientSession) -> dict[str, Any]:
        """What `/ready` says, once every engine takes traffic."""
        async with asyncio.timeout(60):
            while True:
                try:
                    async with session.get(f"{self.url}/ready") as answer:
                        said: dict[str, Any] = await answer.json()
                        if said["all_ready"]:
                            return said
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.05)

    async def ask(self, session: aiohttp.ClientSession) -> int:
        async with session.post(f"{self.url}/v1/chat/completions", json=BODY) as answer:
            await answer.read()
            return answer.status


def write_plan(path: Path, ports: dict[str, int], **flags: Any) -> None:
    engines = {
        name: {
            "model": MODEL,
            "port": port,
            "classes": [name],
            "flags": {"served-model-name": MODEL, "max-num-seqs": 16} | flags,
        }
        for name, port in ports.items()
    }
    command = [sys.executable, str(path.with_name("serve.py"))]
    # The stand-in takes no --model: its own name for it is in the flags.
    path.with_name("serve.py").write_text(
        "import sys\n"
        "at = sys.argv.index('--model')\n"
        "del sys.argv[at : at + 2]\n"
        "from bench.fake_vllm.__main__ import main\n"
        "main()\n"
    )
    path.write_text(yaml.safe_dump({"command": command, "engines": engines}))


@asynccontextmanager
async def up(folder: Path, cache: Path, *options: str, **settings: Any) -> AsyncIterator[Up]:
    port = free_port()
    config = folder / "forebay.yaml"
    config.write_text(yaml.safe_dump({"warm": {"requests": 2}, "workers": 1} | settings))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "up", str(folder / "plan.yaml")),
        *("--config", str(config), "--port", str(port), "--engine-grace", "5", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"FOREBAY_CACHE": str(cache)},
    )
    running = Up(process, port)
    reading = asyncio.get_running_loop().create_task(running.read())
    try:
        async with ended_at_last(process):
            yield running
    finally:
        async with asyncio.timeout(10):
            await reading
        # Of a test that failed: what it says itself is not enough.
        sys.stderr.write(running.output)


async def refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    return False


async def test_a_plan_runs_serves_restarts_without_a_lost_request_and_ends(
    tmp_path: Path, cache_dir: Path
) -> None:
    ports = {"short": free_port(), "long": free_port()}
    plan = tmp_path / "plan.yaml"
    write_plan(plan, ports)
    async with aiohttp.ClientSession() as session:
        async with up(tmp_path, cache_dir) as running:
            said = await running.ready(session)
            assert {name: b["limit"] for name, b in said["backends"].items()} == {
                "short": 16,
                "long": 16,
            }
            assert await running.ask(session) == 200
            await running.until("       short | started as process")
            write_plan(plan, ports, **{"max-num-seqs": 8})
            running.process.send_signal(signal.SIGHUP)
            statuses = []
            async with asyncio.timeout(60):
                while running.output.count("restarted, and warm") < 2:
                    statuses.append(await running.ask(session))
            assert set(statuses) == {200}, statuses
            assert running.output.count("started as process") == 4
        assert all([await refused(port) for port in ports.values()])


async def test_engines_alone_register_for_gateways_elsewhere_and_leave(
    tmp_path: Path, cache_dir: Path
) -> None:
    write_plan(tmp_path / "plan.yaml", {"short": free_port()})
    with redis_server(tmp_path) as redis:
        options = ("--engines-only", "--register", url_of(redis))
        async with up(tmp_path, cache_dir, *options) as running:
            async with asyncio.timeout(60):
                while not redis.exists("forebay:registered:short"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            said = json.loads(str(redis.get("forebay:registered:short")))
            assert (said["classes"], said["limit"]) == (["short"], 16)
            running.process.send_signal(signal.SIGHUP)
            await running.until("restarted, and warm")
            assert redis.exists("forebay:registered:short")
        assert not redis.exists("forebay:registered:short")


async def test_a_bad_plan_or_a_taken_port_is_said_at_the_start(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    async with server:
        for ports, why in [({}, "engines: "), ({"short": taken}, "something answers on")]:
            write_plan(tmp_path / "plan.yaml", ports)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.cli", "up", str(tmp_path / "plan.yaml")),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
            assert process.returncode == 2
            assert f"forebay up: {why}" in output.decode().replace(str(tmp_path), "").replace(
                "/plan.yaml: ", ""
            )
