"""What the gateway asks of vLLM beyond its client's wishes, the client never sees."""

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
    "ids": {"stream": True, "return_token_ids": True},
    "logprobs": {"stream": True, "logprobs": 1},
}
# What differs between two answers to the same question.
_OWN = re.compile(r'"id":\s*"[^"]*"|"created":\s*\d+|"(chatcmpl-tool|call_)[^"]*"')


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


def answer(server: Server, path: str, body: dict[str, Any]) -> tuple[str, str | None]:
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        raw = response.read().decode()
        told = json.dumps(essence(raw)) if raw.startswith("data: ") else raw
        return _OWN.sub("", told), response.headers["x-forebay-channel"]


def essence(stream: str) -> dict[str, Any]:
    """What a stream says, however vLLM put its tokens together to chunks this time."""
    *events, done, rest = stream.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    documents = [json.loads(event.removeprefix("data: ")) for event in events]
    choices = [choice for document in documents for choice in document["choices"]]
    usages = [document["usage"] for document in documents if document.get("usage")]
    return {
        "words": "".join(_words(choice) for choice in choices),
        "tokens": [token for choice in choices for token in choice.get("token_ids") or []],
        "shapes": sorted({_shape(document) for document in documents}),
        "finished": [_shape(document) for document in documents if _finished(document)],
        "fingerprint": [document.get("system_fingerprint") for document in documents[-2:]],
        "prompt": documents[0].get("prompt_token_ids") or choices[0].get("prompt_token_ids"),
        "usage": usages[-1:],
        "in_each": len(usages) > 1,
    }


def _words(choice: dict[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["delta"].get("content") or ""


def _finished(document: dict[str, Any]) -> bool:
    return any(choice["finish_reason"] for choice in document["choices"])


def _shape(document: dict[str, Any]) -> str:
    """The fields of an event, in their order, and those of its choice."""
    choice = document["choices"][0] if document["choices"] else {}
    return f"{list(document)} {list(choice)} {list(choice.get('delta', ()))}"


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
