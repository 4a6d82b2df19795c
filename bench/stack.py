"""Engines that are supervised, and a gateway in front of them, all as processes.

The engines are managed ones (`backends.managed`), so that one that is killed comes back; or given
ones, which only the gateway is started for. What is done to them, and what is asked, is each
measurement's.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from backends.client import ClientLimits
from backends.managed.node import ManagedNode
from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Engine, Flag, Plan
from backends.types import BackendSpec
from bench.children import Child, children
from bench.demo import HOST, MODEL, free_port

READY_WITHIN = 60.0
KEPT_EACH = 2 * ClientLimits().spare
"""While young spare connections take the place of old ones there are both."""
ENGINE = (sys.executable, "-m", "bench.fake_vllm")


class NotReady(Exception):
    """The gateway did not get ready; the message has what it says."""


def engines(names: list[str], **flags: str | int | float) -> Plan:
    """A plan of simulated engines. Flags are those of bench.fake_vllm, with underscores."""
    options = tuple(Flag(name.replace("_", "-"), value, "") for name, value in flags.items())
    return Plan(tuple(Engine(name, MODEL, (), free_port(), flags=options) for name in names))


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs. `log` has one line per request that the gateway has ended. `given` engines are
    not the node's."""

    gateway: Child
    url: str
    node: ManagedNode
    http: aiohttp.ClientSession
    log: Path
    given: tuple[BackendSpec, ...] = ()

    @property
    def backends(self) -> tuple[BackendSpec, ...]:
        """What the gateway stands in front of."""
        return (*self.node.specs(), *self.given)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over the gateway's samples of this name with these labels."""
        async with self.http.get(f"{self.url}/metrics") as answer:
            page = await answer.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def descriptors(self) -> int:
        """Files and sockets that the gateway's process has open, without the few connections to
        each engine that it keeps and renews of its own accord."""
        links = _links(self.gateway.process.pid)
        ports = {urlsplit(spec.url).port for spec in self.backends}
        kept = Counter(port for inode, port in _sockets().items() if f"socket:[{inode}]" in links)
        return len(links) - sum(min(kept[port], KEPT_EACH) for port in ports if port)

    async def until_ready(self, within: float = READY_WITHIN) -> dict[str, Any]:
        """What `/ready` says, once every backend takes traffic. Raises NotReady."""
        said: Any = "no answer"
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with suppress(aiohttp.ClientConnectionError):
                async with self.http.get(f"{self.url}/ready") as answer:
                    said = await answer.json()
                    if said["all_ready"]:
                        return said  # type: ignore[no-any-return]
            await asyncio.sleep(0.05)
        raise NotReady(f"not every backend is ready after {within:.0f} s: {said}")


@asynccontextmanager
async def running(
    folder: Path,
    plan: Plan,
    managed: ManagedSettings,
    settings: Mapping[str, Any],
    *,
    ready_within: float = READY_WITHIN,
    given: Sequence[BackendSpec] = (),
) -> AsyncIterator[Stack]:
    """The engines of the plan, and before them and the given ones a gateway with these settings
    (`backends` are added).

    Raises ChildEnded when the gateway ends by itself.
    """
    output = (folder / "engines.log").open("w")

    def tell(name: str, line: str) -> None:
        output.write(f"{name}: {line}\n")

    port = free_port()
    config = folder / "gateway.yaml"
    log = folder / "requests.jsonl"
    with output:
        async with ManagedNode(plan, managed, tell) as node:
            behind = (*node.specs(), *given)
            backends = {s.name: {"url": s.url, "limit": s.limit} for s in behind}
            own = {"port": port, "request_log": str(log), "backends": backends}
            config.write_text(yaml.safe_dump(own | dict(settings)))
            # A connection each: what a server does to one must not meet the next request.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                children(folder) as started,
            ):
                gateway = await started.start(
                    "gateway",
                    *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)),
                )
                url = f"http://{HOST}:{port}"
                stack = Stack(gateway, url, node, http, log, tuple(given))
                await stack.until_ready(ready_within)
                yield stack


async def fail(http: aiohttp.ClientSession, url: str, mode: str, times: int | None) -> bool:
    """Have a simulated engine do something wrong; False when it does not even answer that."""
    limits = aiohttp.ClientTimeout(total=2.0)
    try:
        async with http.post(
            f"{url}/fake/fail", json={"mode": mode, "times": times}, timeout=limits
        ) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _links(pid: int) -> list[str]:
    """What the process has open. One that is closed while it is looked at is left out."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(os.readlink(entry))
    return links


def _sockets() -> dict[str, int]:
    """The remote port of each IPv4 socket of this machine, by inode."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9]: int(row[2].partition(":")[2], 16) for row in rows}


def signal_group(pid: int, number: int) -> bool:
    """Signal an engine's whole group; False when it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    return True
