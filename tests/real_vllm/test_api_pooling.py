"""A real vLLM that does not generate: embeddings and scores, through the gateway and directly."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from bench.demo import free_port
from bench.vllm_env import serve
from bench.vllm_env.layout import Layout
from tests.real_vllm.servers import Server


@pytest.fixture(scope="module")
def embedder(layout: Layout, logs: Path) -> Iterator[Server]:
    port = free_port()
    command = serve.command(layout, layout.tiny, port, max_model_len=2048)
    command = [part for part in command if "tool" not in part and part != "hermes"]
    command += ["--runner", "pooling", "--convert", "embed"]
    log = logs / "embedder.log"
    with Server(command, port, log=log, env=os.environ | serve.settings()) as server:
        server.wait_until_ready("/health", serve.READY_WITHIN)
        yield server


@pytest.fixture(scope="module")
def through(embedder: Server, logs: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "gateway.cli", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--backend", embedder.url, "--expose-timings"]
    with Server(command, port, log=logs / "gateway-embedder.log") as server:
        server.wait_until_ready("/ready", 120)
        yield server


def ask(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json={"model": "tiny"} | body, timeout=60)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "A forebay is a pool."},
        {"input": ["one", "another text  12345"]},
        {"input": [1, 100, 200]},
        {"input": [[1, 100], [200]]},
        {"input": "a b c d e f", "truncate_prompt_tokens": 3},
        {"messages": [{"role": "user", "content": "Hi"}]},
    ],
)
def test_embeddings_are_vllms_and_counted_as_it_counts(
    embedder: Server, through: Server, body: dict[str, Any]
) -> None:
    own, answer = ask(embedder, "/v1/embeddings", body), ask(through, "/v1/embeddings", body)
    assert own.status_code == answer.status_code == 200
    assert own.json()["data"] == answer.json()["data"]
    assert own.json()["usage"] == answer.json()["usage"]
    counted = int(answer.headers["x-forebay-prompt-tokens"])
    assert counted == answer.json()["usage"]["prompt_tokens"]


def test_the_official_client_embeds(through: Server) -> None:
    with openai.OpenAI(base_url=f"{through.url}/v1", api_key="any", max_retries=0) as client:
        answer = client.embeddings.create(model="tiny", input=["one", "two"])
        assert [one.index for one in answer.data] == [0, 1]
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "Hi"}]
            )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"queries": "one", "documents": ["one", "two three"]}),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d"]}),
        ("/v1/rerank", {"query": "one", "documents": ["one", "two"], "top_n": 1}),
        ("/rerank", {"query": "one", "documents": ["one"]}),
        ("/v2/rerank", {"query": "one", "documents": ["one"]}),
        ("/pooling", {"input": "one"}),
        ("/v2/embed", {"texts": ["one"], "input_type": "query", "embedding_types": ["float"]}),
        ("/v1/rerank", {"query": 5, "documents": ["one"]}),
        ("/v1/embeddings", {"input": {}}),
        ("/v1/embeddings", {"input": "water " * 3000}),
    ],
)
def test_scores_and_refusals_are_vllms(
    embedder: Server, through: Server, path: str, body: dict[str, Any]
) -> None:
    own, answer = ask(embedder, path, body), ask(through, path, body)
    assert own.status_code == answer.status_code
    told = [one.json() for one in (own, answer)]
    for one in told:
        one.pop("id", None)
        one.pop("created", None)
    assert told[0] == told[1]
