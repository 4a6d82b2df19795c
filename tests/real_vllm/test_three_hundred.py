"""Three hundred random conversations on a live server, for two tokenizers: vLLM computes from the
ids that it would have made itself, whatever way they came.

More tokenizers, by vLLM's own renderer without an engine: tests/tokenizer_pool/test_vllm_parity.py.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.demo import free_port
from bench.vllm_env import serve
from bench.vllm_env.layout import Layout
from tests.real_vllm.conftest import MAX_MODEL_LEN
from tests.real_vllm.servers import Server
from tests.tokenizer_pool.requests_corpus import requests

CONVERSATIONS = 300


@pytest.fixture(scope="module")
def smollm2(layout: Layout, logs: Path) -> Iterator[tuple[Server, Server]]:
    """vLLM with SmolLM2's tokenizer and template on the tiny weights, and a gateway before it."""
    port = free_port()
    command = serve.command(layout, layout.tiny, port, max_model_len=MAX_MODEL_LEN)
    command += ["--tokenizer", str(layout.smollm2)]
    environment = os.environ | serve.settings()
    with Server(command, port, log=logs / "smollm2.log", env=environment) as vllm:
        vllm.wait_until_ready("/health", serve.READY_WITHIN)
        port = free_port()
        command = [sys.executable, "-m", "gateway.cli", "serve", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--backend", vllm.url, "--expose-timings"]
        command += ["--tokenizer", f"tiny={layout.smollm2}"]
        with Server(command, port, log=logs / "smollm2-gateway.log") as gateway:
            gateway.wait_until_ready("/ready", 120)
            yield vllm, gateway


def used_ids(server: Server, request: dict[str, Any]) -> tuple[list[int] | None, str]:
    """The prompt ids that vLLM computed from (None: it refused), and the gateway's channel."""
    body = request | {"model": "tiny", "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    asked = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=120) as response:
            return json.load(response)["prompt_token_ids"], response.headers.get(
                "x-forebay-channel", ""
            )
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise
        return None, ""


def compare(vllm: Server, gateway: Server) -> Counter[str]:
    def one(request: dict[str, Any]) -> str:
        own, _ = used_ids(vllm, request)
        ids, channel = used_ids(gateway, request)
        if ids != own:
            return f"different: {json.dumps(request)}"
        return "refused" if own is None else channel

    with ThreadPoolExecutor(4) as pool:
        return Counter(pool.map(one, requests(23, CONVERSATIONS, "tiny")))


def test_tiny_computes_from_its_own_ids(vllm: Server, gateway: Server) -> None:
    counts = compare(vllm, gateway)
    assert set(counts) <= {"ids", "text", "refused"}, counts
    assert counts["ids"] > CONVERSATIONS / 3, counts


def test_smollm2_computes_from_its_own_ids(smollm2: tuple[Server, Server]) -> None:
    counts = compare(*smollm2)
    assert set(counts) <= {"ids", "text", "refused"}, counts
    assert counts["ids"] > CONVERSATIONS / 5, counts
