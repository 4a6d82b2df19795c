"""An operator's session: the real `redis-cli` and `forebay ctl` before a gateway that serves."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.demo import find_redis
from tests.integration.conftest import StartEngine
from tests.integration.parts import MODEL, running_command
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow

HELLO = [{"role": "user", "content": "Hello"}]


class Operator:
    """A person at a terminal, and a client of the gateway."""

    def __init__(self, redis: str, gateway: str, http: aiohttp.ClientSession) -> None:
        self._redis = redis
        self._gateway = gateway
        self._http = http

    async def cli(self, *args: str) -> str:
        """`redis-cli ARGS`."""
        port = self._redis.rpartition(":")[2]
        return await self._run(str(find_redis().client), "-p", port, *args)

    async def forebay(self, *args: str, status: int = 0) -> str:
        """`forebay ARGS`."""
        return await self._run(sys.executable, "-m", "gateway.cli", *args, status=status)

    async def ask(self, key: str = "none") -> int:
        body: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 1}
        headers = {"authorization": f"Bearer {key}"}
        url = f"{self._gateway}/v1/chat/completions"
        async with self._http.post(url, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def ready(self) -> dict[str, Any]:
        async with self._http.get(f"{self._gateway}/ready") as answer:
            return await answer.json()  # type: ignore[no-any-return]

    async def _run(self, *command: str, status: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"FOREBAY_REDIS": self._redis, "FOREBAY_GATEWAY": self._gateway},
        )
        output, _ = await process.communicate()
        assert process.returncode == status, output.decode()
        return output.decode()


async def soon(condition: Callable[[], Awaitable[bool]], within: float = 2.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        if await condition():
            return True
        await asyncio.sleep(0.01)
    return False


async def test_an_operators_session(
    start_engine: StartEngine, cache_dir: Path, tmp_path: Path
) -> None:
    engine = await start_engine()
    with redis_server(tmp_path) as redis:
        options = ("--redis", url_of(redis), "--workers", "2")
        async with (
            running_command(cache_dir, engine, *options) as command,
            aiohttp.ClientSession() as http,
            asyncio.TaskGroup() as reading,
        ):
            assert command.process.stderr is not None
            log = reading.create_task(command.process.stderr.read())
            person = Operator(url_of(redis), f"http://127.0.0.1:{command.port}", http)
            await _limits_with_redis_cli(person)
            await _what_is_wrong_is_told(person)
            await _versions_and_the_way_back(person)
            await _drain_and_back(person)
            await _keys_at_every_relay_process(person)
            command.process.kill()
            async with asyncio.timeout(20):
                assert b"Traceback" not in await log


async def _limits_with_redis_cli(person: Operator) -> None:
    await person.cli("hset", "forebay:class:short", "limit", "7")

    async def in_force() -> bool:
        return bool((await person.ready())["pools"]["short"]["limit_configured"] == 7)

    assert await soon(in_force, 1.5)
    assert "limit = 7    (redis)" in await person.forebay("ctl", "get", "class:short")


async def _what_is_wrong_is_told(person: Operator) -> None:
    await person.cli("hset", "forebay:class:short", "limit", "seven")

    async def told() -> bool:
        return "limit" in await person.cli("hget", "forebay:rejected", "forebay:class:short")

    assert await soon(told)
    assert (await person.ready())["pools"]["short"]["limit_configured"] == 7
    assert await person.ask() == 200
    refusal = await person.forebay("ctl", "set", "burst", "window=soon", status=1)
    assert "valid number" in refusal


async def _versions_and_the_way_back(person: Operator) -> None:
    await person.forebay("ctl", "rollback", "1", "--as", "ann")
    assert await person.cli("hget", "forebay:class:short", "limit") == "7\n"
    dry = await person.forebay("ctl", "set", "backend:backend-0", "weight=0", "--dry-run")
    assert "no other backend serves its classes" in dry
    await person.forebay("ctl", "set", "class:short", "limit=", "--as", "ann", "--note", "enough")
    assert "by ann (enough)" in await person.forebay("ctl", "history")


async def _drain_and_back(person: Operator) -> None:
    await person.forebay("ctl", "drain", "backend-0")

    async def state(wanted: str) -> bool:
        return bool((await person.ready())["backends"]["backend-0"]["state"] == wanted)

    assert await soon(lambda: state("draining"))
    assert await person.ask() == 503
    await person.forebay("ctl", "undrain", "backend-0")
    assert await soon(lambda: state("ready"), 15.0)


async def _keys_at_every_relay_process(person: Operator) -> None:
    secret = (await person.forebay("keys", "create", "acme")).splitlines()[-1]

    async def closed() -> bool:
        return [await person.ask() for _ in range(8)] == [401] * 8

    assert await soon(closed)
    assert [await person.ask(secret) for _ in range(8)] == [200] * 8
    await person.forebay("keys", "revoke", secret[:11])

    async def opened() -> bool:
        return [await person.ask() for _ in range(8)] == [200] * 8

    assert await soon(opened)
