"""The check hears every reading of a running fleet, and tells what it finds everywhere."""

import asyncio
import logging
from dataclasses import replace

import aiohttp
import pytest

from gateway.memory.check import MemoryCheck
from gateway.memory.signs import LEAST, Sign
from tests.gateway.memory.hours import BUSY
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import Gateway


def test_findings_stand_for_an_hour_and_a_backend_that_is_gone_is_forgotten() -> None:
    check = MemoryCheck(3600.0, lambda _: 16)
    for number in range(LEAST + 1):
        check.saw(replace(BUSY, preemptions=number))
        check.saw(replace(BUSY, backend="short-0"))
    check.look()
    assert {name: [f.sign for f in found] for name, found in check.found.items()} == {
        "long-0": [Sign.PREEMPTING]
    }
    assert sorted(check.checked) == ["long-0", "short-0"]
    for _ in range(LEAST):
        check.saw(replace(BUSY, backend="short-0"))
    check.look()
    assert (check.found, list(check.checked)) == ({}, ["short-0"])


async def test_no_interval_is_no_check() -> None:
    await MemoryCheck(None, lambda _: 16).run()


async def test_a_gateways_check_is_in_its_log_its_metrics_and_on_its_page(
    start_engine: StartEngine, start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await start_engine()
    gateway = await start_gateway(
        backends={"only": {"url": engine.url, "limit": 10}}, admin={"port": 0}
    )
    check = gateway.app.brain.memory

    async def read() -> bool:
        check.look()
        return "only" in check.checked

    await gateway.until(read)  # a reading of the engine's own metrics came in
    for number in range(LEAST + 1):
        check.saw(replace(BUSY, backend="only", running=10, kv_usage=0.99, preemptions=number))
    with caplog.at_level(logging.INFO, "forebay.memory"):
        check.look()
    assert "backend only: 60 requests were preempted" in caplog.text
    assert "backends.only.limit 9" in caplog.text
    assert await gateway.metric("forebay_memory_sign", backend="only", sign="preempting") == 1
    assert await gateway.metric("forebay_memory_sign", backend="only", sign="idle") == 0
    assert "60 requests were preempted" in await page_of(gateway)


async def page_of(gateway: Gateway) -> str:
    """The first thing that the live page's stream says with a finding in it."""
    url = f"http://127.0.0.1:{gateway.app.brain.admin.port}/ui/events"
    async with asyncio.timeout(15), aiohttp.ClientSession() as session, session.get(url) as stream:
        async for line in stream.content:
            if b'"sign":"preempting"' in line:
                return line.decode()
    raise EOFError
