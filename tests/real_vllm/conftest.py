"""One real vLLM server and one gateway in front of it, for the whole session.

Not part of a plain `pytest`: it is asked for by `-m real_vllm`, and builds the vLLM environment
when there is none yet (bench/vllm_env; three minutes and 2.8 GB).
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from bench.demo import free_port
from bench.vllm_env import serve
from bench.vllm_env.build import build
from bench.vllm_env.layout import Layout, locate
from tests.real_vllm.metrics import Metrics
from tests.real_vllm.servers import Server

Tell = Callable[[str], None]

_HERE = Path(__file__).parent

MAX_MODEL_LEN = 8192
STORE = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
"""So that a conversation may go on from a response."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "real_vllm" in (config.option.markexpr or "")
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.real_vllm)
            if not asked:
                item.add_marker(pytest.mark.skip(reason="needs a real vLLM: make test-vllm"))


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Say something to the person at the terminal at once, past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    return say


@pytest.fixture(scope="session")
def layout(tell: Tell) -> Layout:
    layout = locate()
    build(layout, lambda line: tell(f"vllm-env: {line}"))
    return layout


@pytest.fixture(scope="session")
def logs(
    tell: Tell, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The servers' logs; where they are and how they end is told when a test failed."""
    folder = tmp_path_factory.mktemp("logs")
    yield folder
    if request.session.testsfailed:
        for log in folder.iterdir():
            tell(f"\n--- the end of {log} ---\n{log.read_text()[-6000:]}")


@pytest.fixture(scope="session")
def vllm(layout: Layout, logs: Path) -> Iterator[Server]:
    port = free_port()
    command = serve.command(layout, layout.tiny, port, max_model_len=MAX_MODEL_LEN)
    with Server(
        command, port, log=logs / "vllm.log", env=os.environ | serve.settings() | STORE
    ) as server:
        server.wait_until_ready("/health", serve.READY_WITHIN)
        yield server


@pytest.fixture(scope="session")
def gateway(vllm: Server, logs: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "gateway.cli", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--backend", vllm.url, "--expose-timings"]
    with Server(command, port, log=logs / "gateway.log") as server:
        server.wait_until_ready("/ready", 120)
        yield server
        assert server.stop() == 0, "the gateway did not leave on SIGTERM"


@pytest.fixture(scope="session")
def direct(vllm: Server) -> Iterator[openai.OpenAI]:
    """A client of vLLM itself: what the gateway must not change."""
    with _client(vllm) as client:
        yield client


@pytest.fixture(scope="session")
def shaped(gateway: Server) -> Iterator[openai.OpenAI]:
    """A client of the gateway."""
    with _client(gateway) as client:
        yield client


def _client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def engine(vllm: Server) -> Metrics:
    return Metrics(vllm.url)


@pytest.fixture(scope="session")
def counters(gateway: Server) -> Metrics:
    return Metrics(gateway.url)
