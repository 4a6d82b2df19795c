"""The compose file's own services, started as processes with its very commands and environment.

No container engine is needed for that. What a container network and volumes give is put in their
place: names become addresses on this machine, ports free ones, folders temporary ones.
"""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.demo import find_redis, free_port
from tests.deploy.files import DEPLOY, instructions, services
from tests.integration.conftest import cache_dir

pytestmark = pytest.mark.slow

__all__ = ["cache_dir"]

BODY = {
    "model": "forebay-demo",
    "messages": [{"role": "user", "content": "Hello!"}],
    "stream": True,
}


class Stack:
    """Where each service is here; rewrites commands, environments and files accordingly."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        ports = {name: free_port() for name in ("redis", "short", "long", "gateway", "admin")}
        self.gateway = f"http://127.0.0.1:{ports['gateway']}"
        self.admin = f"http://127.0.0.1:{ports['admin']}"
        self._ports = ports
        self._here = {
            "redis://redis:6379": f"redis://127.0.0.1:{ports['redis']}",
            "http://vllm-short:8000": f"http://127.0.0.1:{ports['short']}",
            "http://vllm-long:8000": f"http://127.0.0.1:{ports['long']}",
            "/var/lib/forebay/cache": str(cache),
            "/var/lib/forebay": str(folder),
            "/etc/forebay": str(folder),
            "/opt/forebay/bin": str(Path(sys.executable).parent),
            "0.0.0.0": "127.0.0.1",
            "8080": str(ports["gateway"]),
            "8081": str(ports["admin"]),
        }

    def here(self, text: str) -> str:
        for there, here in self._here.items():
            text = text.replace(there, here)
        return text

    def engine(self, name: str, text: str) -> str:
        return self.here(text).replace("8000", str(self._ports[name.removeprefix("engine-")]))

    def redis(self, command: list[str]) -> list[str]:
        """The same server, as this machine has it, on a port and in a folder of its own."""
        program = {"redis-server": str(find_redis().server)}
        own = [
            "--port",
            str(self._ports["redis"]),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
        ]
        return [program.get(part, part) for part in command] + own


def image() -> tuple[list[str], dict[str, str], list[str]]:
    """The entry point, environment and health check that the Dockerfile gives."""
    found = dict(instructions())
    entry = json.loads(found["ENTRYPOINT"])
    environment = dict(pair.split("=", 1) for pair in shlex.split(found["ENV"]))
    check = json.loads(re.search(r"CMD (\[.*\])", found["HEALTHCHECK"])[1])  # type: ignore[index]
    return entry, environment, check


async def start(stack: AsyncExitStack, command: list[str], environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, env=environment)

    async def end() -> None:
        if process.returncode is None:
            process.terminate()
        await process.wait()

    stack.push_async_callback(end)


@asynccontextmanager
async def running(folder: Path, cache: Path) -> AsyncIterator[Stack]:
    """The profile that needs no GPU, but for what is not ours."""
    found, there = services("cpu"), Stack(folder, cache)
    entry, given, _ = image()
    base = {
        name: there.here(value.replace("$PATH", "/usr/bin:/bin")) for name, value in given.items()
    }
    settings = (DEPLOY / "compose/gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(there.here(settings))
    async with AsyncExitStack() as stack:
        await start(stack, there.redis(found["redis"]["command"]), base)
        for name in ("engine-short", "engine-long"):
            service = found[name]
            command = [
                there.engine(name, part) for part in service["entrypoint"] + service["command"]
            ]
            await start(stack, [sys.executable, *command[1:]], base)
        command = [there.here(part) for part in entry + found["gateway"]["command"]]
        own = found["gateway"]["environment"]
        await start(
            stack, [str(Path(sys.executable).with_name(command[0])), *command[1:]], base | own
        )
        yield there


async def until_ready(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while True:
            try:
                async with session.get(f"{url}/ready") as answer:
                    state: dict[str, Any] = await answer.json()
                    if state.get("all_ready") and state["redis_up"]:
                        return state
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)


async def until_seen(session: aiohttp.ClientSession, url: str) -> None:
    """The live page hears of the answer, whichever process of the gateway has given it."""
    async with asyncio.timeout(30), session.get(url) as events:
        while True:
            block = await events.content.readuntil(b"\n\n")
            name, _, data = block.decode().partition("\ndata: ")
            if name == "event: second":
                short, _ = json.loads(data)["classes"]
                if short["streams"]:
                    assert {stage["name"] for stage in short["stages"]} >= {"connect", "backend"}
                    return


async def health(check: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *check[1:], stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()


async def test_the_profile_without_a_gpu_comes_up_and_answers(
    tmp_path: Path, cache_dir: Path
) -> None:
    async with running(tmp_path, cache_dir) as there, aiohttp.ClientSession() as session:
        state = await until_ready(session, there.gateway)
        assert {name: b["limit"] for name, b in state["backends"].items()} == {
            "short-0": 48,
            "long-0": 24,
        }
        async with session.post(f"{there.gateway}/v1/chat/completions", json=BODY) as answer:
            assert answer.status == 200
            assert b"data: [DONE]" in await answer.read()
        async with session.get(f"{there.admin}/ui") as answer:
            assert "Forebay" in await answer.text()
        await until_seen(session, f"{there.admin}/ui/events")
        async with session.get(f"{there.gateway}/metrics") as answer:
            assert "forebay_redis_up 1" in await answer.text()
        _, _, check = image()
        assert await health([there.here(part) for part in check]) == 0
        for name in ("engine-short", "engine-long"):
            test = services("cpu")[name]["healthcheck"]["test"]
            assert await health([there.engine(name, part) for part in test[1:]]) == 0
    assert (tmp_path / "requests.jsonl").read_bytes().count(b"\n") == 1


async def test_the_health_checks_fail_where_nothing_answers() -> None:
    _, _, check = image()
    nowhere = str(free_port())
    assert await health([part.replace("8080", nowhere) for part in check]) != 0
