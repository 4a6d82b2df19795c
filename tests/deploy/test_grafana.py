"""Every query of the dashboard, run by a real Prometheus on what a real gateway says."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import openai
import pytest
import yaml

from bench.demo import free_port
from gateway.metrics import TTFT_BUCKETS
from tests.deploy.files import DEPLOY, dashboard, queries, tool
from tests.gateway.ui.quick import cache_dir, start_engine, start_gateway
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Gateway
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow

__all__ = ["cache_dir", "start_engine", "start_gateway"]

MAY_BE_EMPTY = {"Parity mismatches", "Text that was encoded before"}
"""Nothing went wrong, and nothing was said twice; the first has a unit test of its alert."""

WITHIN = 20.0

_NAME = re.compile(r"\bforebay_[a-z0-9_]+")
_PARTS = re.compile(r"_(bucket|sum|count)$")


@asynccontextmanager
async def prometheus(folder: Path, targets: list[str]) -> AsyncIterator[str]:
    """A server that scrapes these every second; yields its URL."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "forebay", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        tool("prometheus", "Debian's prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        await process.wait()


async def ask(session: aiohttp.ClientSession, url: str, query: str) -> list[Any]:
    async with session.get(f"{url}/api/v1/query", params={"query": query}) as answer:
        document = await answer.json()
        assert document["status"] == "success", (query, document)
        found: list[Any] = document["data"]["result"]
        return found


async def work(gateway: Gateway) -> None:
    """A little of everything that is counted: both classes, a burst, a refusal, a stream."""

    async def one(client: openai.AsyncOpenAI, words: int) -> None:
        prompt = " ".join(f"word{number}" for number in range(words, 0, -1))
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, stream=True, max_tokens=8
        )
        async for _ in stream:
            pass

    async with gateway.client() as client:
        await one(client, 5)
        await asyncio.gather(*(one(client, words) for words in range(700, 704)))
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="nobody", prompt="Hi")


async def test_every_panel_shows_what_a_gateway_at_work_says(
    tmp_path: Path, start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    tool("prometheus", "Debian's prometheus")
    with redis_server(tmp_path) as redis:
        engine = await start_engine("--preset", "a100-llama-8b")
        gateway = await start_gateway(
            backends={"a": {"url": engine.url, "limit": 8}},
            redis=url_of(redis),
            burst={"prompt_tokens": 1500},
        )
        target = gateway.url.removeprefix("http://")
        async with prometheus(tmp_path, [target]) as url, aiohttp.ClientSession() as session:
            await gateway.until(lambda: scraped(session, url))
            for _ in range(3):
                await work(gateway)
            empty = {title for title, _ in queries()}
            deadline = monotonic() + WITHIN
            while empty - MAY_BE_EMPTY and monotonic() < deadline:
                for title, query in queries():
                    if await ask(session, url, query):
                        empty.discard(title)
                await asyncio.sleep(0.5)
    assert empty - MAY_BE_EMPTY == set()


async def scraped(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        return bool(await ask(session, url, "forebay_build_info"))
    except aiohttp.ClientError:
        return False


async def test_every_metric_that_is_named_exists(start_gateway: StartGateway) -> None:
    """Of dashboards, alerts and the autoscaler alike, also where Prometheus is not installed."""
    gateway = await start_gateway(
        backends={"b": {"url": "http://127.0.0.1:1"}}, redis="redis://127.0.0.1:1", wait=False
    )
    text = (await gateway.get("/metrics"))[1]
    exist = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    named = {name for _, query in queries() for name in _NAME.findall(query)}
    alerts = (DEPLOY / "prometheus/alerts.yml").read_text()
    named |= set(re.findall(r"(?<!:)\bforebay_[a-z_]+(?=[\[{ )])", alerts))
    assert len(named) > 25
    missing = {name for name in named if not {name, _PARTS.sub("", name)} & exist}
    assert missing == set()


def test_the_targets_of_the_alerts_are_bounds_of_buckets() -> None:
    texts = [(DEPLOY / "prometheus/alerts.yml").read_text(), *(query for _, query in queries())]
    bounds = {bound for text in texts for bound in re.findall(r'le="([\d.]+)"', text)}
    assert bounds == {"0.6", "5.0"}
    assert bounds <= {str(bound) for bound in TTFT_BUCKETS}


def test_panels_have_a_source_that_is_provisioned() -> None:
    file = DEPLOY / "grafana/provisioning/datasources/prometheus.yaml"
    (source,) = yaml.safe_load(file.read_text())["datasources"]
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    places = [tuple(panel["gridPos"].values()) for panel in dashboard()["panels"]]
    assert len(set(places)) == len(places)
