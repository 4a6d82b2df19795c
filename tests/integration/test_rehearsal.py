"""Nobody pays for the gateway's own first request: it was rehearsed, and nobody sees that."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.rehearsal import CHATS
from gateway.tenancy.keys import new_key
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, running_gateway
from tests.integration.test_node import RunningNode, StartNode, start_node

__all__ = ["start_node"]

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
WARM = 2
"""Requests of a round of the warm-up, of which there may be several."""
REHEARSED = CHATS + 3


async def test_a_rehearsal_reaches_the_engine_and_no_user_sees_it(
    start_engine: StartEngine,
    start_gateway: StartGateway,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    engine, key, log = await start_engine(), new_key(), tmp_path / "requests.jsonl"
    gateway = await start_gateway(
        backends={"only": {"url": engine.url}},
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {"requests_per_minute": 1}},
        request_log=str(log),
    )
    asked = await gateway.metric("forebay_warm_requests_total")
    assert asked > REHEARSED
    assert (asked - REHEARSED) % WARM == 0
    tokens = await gateway.metric("forebay_warm_prompt_tokens_total")
    assert (await engine.counts())["vllm:prompt_tokens_total"] >= tokens > REHEARSED * 64
    assert not [line for line in caplog.records if line.name == "forebay.rehearsal"]

    page = (await gateway.get("/metrics"))[1]
    user = ("forebay_requests_total{", "forebay_ttft_seconds_count{", "forebay_e2e_seconds_count{")
    assert not [line for line in page.splitlines() if line.startswith(user)]
    assert not log.exists() or not log.read_text()
    (ledger,) = gateway.app.driver.snapshot().backends
    assert (ledger.in_flight, gateway.in_flight()) == (0, 0)

    headers = {"authorization": f"Bearer {key.secret}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=BODY) as answer,
    ):
        assert answer.status == 200, "its one request a minute is still there"
    assert await gateway.metric("forebay_requests_total") == 1


async def test_an_engine_that_fails_the_rehearsal_gets_ready_all_the_same(
    start_engine: StartEngine, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One sequence at a time, and a tenth of a second each: longer than a rehearsal may take."""
    engine = await start_engine("--max-num-seqs", "1", "--step-ms", "120")
    async with running_gateway(
        cache_dir, wait=False, backends={"only": {"url": engine.url}}
    ) as gateway:
        await gateway.until(gateway.app.status.all_ready)
    assert "backend only: rehearsal ended by TimeoutError" in caplog.text


@pytest.mark.slow
async def test_the_first_request_finds_everything_done(
    start_engine: StartEngine, cache_dir: Path
) -> None:
    """In a process of its own, which nothing but the rehearsal can have warmed."""
    engine = await start_engine()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.first_request", str(cache_dir), engine.url),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        told, _ = await process.communicate()
    found = json.loads(told)
    assert found["imported"] == []
    assert found["unspecialised"] == []


@pytest.mark.slow
async def test_every_relay_process_rehearses_also_one_that_takes_anothers_place(
    start_engine: StartEngine,
    start_node: StartNode,
) -> None:
    engine = await start_engine()
    running = await start_node(backends={"only": {"url": engine.url}})
    first = _asked(running)
    assert first > 2 * REHEARSED
    assert (first - 2 * REHEARSED) % WARM == 0
    assert "forebay_requests_total{" not in await running.page("/metrics")
    os.kill(running.node.relays.pids()[0], signal.SIGKILL)
    await running.until(lambda: _asked(running) == first + REHEARSED)
    assert running.in_flight() == 0
    assert await running.ask() == 200


def _asked(running: RunningNode) -> int:
    return running.node.brain.fleet.own_traffic()["only"].requests
