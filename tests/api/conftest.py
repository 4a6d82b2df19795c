"""Simulated engines and a gateway as processes, so that clients of any kind can call them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2 as httpx
import pytest

from bench.demo import free_port
from tests.api.contract import Service
from tests.real_vllm.servers import Server

MODEL = "forebay-demo"

StartEngine = Callable[..., str]
StartGateway = Callable[..., Server]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all workers of a run: the first to come extracts the tokenizer."""
    return tmp_path_factory.getbasetemp().parent / "forebay-cache"


@pytest.fixture(scope="session")
def start_engine() -> Iterator[StartEngine]:
    """`start_engine(*flags)`: the address of a simulated engine."""
    with ExitStack() as stack:

        def start(*flags: str) -> str:
            command = [sys.executable, "-m", "bench.fake_vllm", "--port", "0", *flags]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            return str(json.loads(process.stdout.readline())["url"])

        yield start


@pytest.fixture(scope="session")
def start_gateway(
    cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartGateway]:
    """`start_gateway(*engines, **settings)`: a gateway that is ready."""
    with ExitStack() as stack:

        def start(*engines: str, **settings: object) -> Server:
            folder = tmp_path_factory.mktemp("gateway")
            backends = {f"engine-{n}": {"url": url} for n, url in enumerate(engines)}
            own = {
                "backends": backends,
                "tokenizer": {"cache_dir": str(cache_dir), "channel": "ids"},
                "workers": 1,
            }
            file = folder / "forebay.json"  # JSON is YAML
            file.write_text(json.dumps(own | {"warm": {"requests": 2}} | settings))
            port = free_port()
            command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(file)]
            command += ["--host", "127.0.0.1", "--port", str(port)]
            server = stack.enter_context(Server(command, port, log=folder / "gateway.log"))
            server.wait_until_ready("/ready", 60)
            deadline = time.monotonic() + 60
            while not httpx.get(f"{server.url}/ready", timeout=30).json()["all_ready"]:
                assert time.monotonic() < deadline, "an engine did not get ready"
                time.sleep(0.1)
            return server

        yield start


@pytest.fixture(scope="session")
def engine(start_engine: StartEngine) -> str:
    return start_engine("--max-model-len", "16384")


@pytest.fixture(scope="session")
def gateway(start_gateway: StartGateway, engine: str) -> Server:
    return start_gateway(engine)


@pytest.fixture(scope="session")
def service(gateway: Server, engine: str) -> Service:
    return Service(gateway.url, engine, MODEL)
