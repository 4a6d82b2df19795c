"""What the gateway asks of vLLM beyond its client's wishes, the client never sees; to the byte."""

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.demo import free_port
from tests.real_vllm.servers import Server

_CHAT = {"messages": [{"role": "user", "content": "What is a forebay?"}]}
_ASKED = {
    "chat": ("/v1/chat/completions", _CHAT),
    "tools": (
        "/v1/chat/completions",
        _CHAT | {"tools": [{"type": "function", "function": {"name": "ping"}}]},
    ),
    "completion": ("/v1/completions", {"prompt": "A forebay is"}),
}
_FIELDS: dict[str, dict[str, Any]] = {
    "whole": {},
    "stream": {"stream": True},
    "usage": {"stream": True, "stream_options": {"include_usage": True}},
    "each": {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "each-unasked": {"stream": True, "stream_options": {"continuous_usage_stats": True}},
    "two": {"stream": True, "n": 2, "temperature": 0.7, "seed": 1},
    "ids": {"stream": True, "return_token_ids": True},
    "logprobs": {"stream": True, "logprobs": 1},
}
# What differs between two answers to the same question.
_OWN = re.compile(rb'"id":"[^"]*"|"created":\d+|"(chatcmpl-tool|call_)[^"]*"')


@pytest.fixture(scope="module")
def sampling(vllm: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A gateway that asks every second answer which ids it was computed from."""
    folder = tmp_path_factory.mktemp("sampling")
    config = folder / "forebay.yaml"
    config.write_text(json.dumps({"tokenizer": {"parity_sample": 2, "channel": "ids"}}))
    port = free_port()
    command = [sys.executable, "-m", "gateway.cli", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--backend", vllm.url, "--config", str(config)]
    command += ["--workers", "1", "--expose-timings"]
    with Server(command, port, log=Path(folder / "gateway.log")) as server:
        server.wait_until_ready("/ready", 120)
        yield server


def answer(server: Server, path: str, body: dict[str, Any]) -> tuple[bytes, str | None]:
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return _OWN.sub(b"", response.read()), response.headers["x-forebay-channel"]


@pytest.mark.parametrize("fields", _FIELDS.values(), ids=_FIELDS)
@pytest.mark.parametrize(("path", "asked"), _ASKED.values(), ids=_ASKED)
def test_answer_is_the_one_that_the_client_asked_for(
    vllm: Server, sampling: Server, path: str, asked: dict[str, Any], fields: dict[str, Any]
) -> None:
    body = {"model": "tiny", "max_tokens": 6, "temperature": 0, **asked, **fields}
    direct, _ = answer(vllm, path, body)
    for _ in range(2):  # one of them is asked for its ids
        assert answer(sampling, path, body) == (direct, "ids")


def test_no_answer_differed(sampling: Server) -> None:
    with urllib.request.urlopen(sampling.url + "/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    assert not [line for line in lines if line.startswith("forebay_parity_mismatches_total{")]


def test_the_channels_are_timed_and_told(gateway: Server) -> None:
    with urllib.request.urlopen(gateway.url + "/ready", timeout=10) as response:
        (backend,) = json.load(response)["backends"].values()
    for bands in (backend["models"]["tiny"][f"{api}_bands"] for api in ("chat", "completion")):
        assert bands[-1]["up_to_tokens"] is None
        assert all(band["ttft_ids_ms"] > 0 and band["ttft_text_ms"] > 0 for band in bands)
