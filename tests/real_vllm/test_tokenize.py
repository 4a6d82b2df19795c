"""`/tokenize` and `/detokenize` of the gateway say what vLLM's own say, to the byte."""

import json
import urllib.request
from typing import Any

import pytest

from tests.real_vllm.conversations import Request, fifty
from tests.real_vllm.servers import Server

_CHATS = [pytest.param(request, id=name) for name, request in fifty()]
_TEXTS = [
    "",
    "Once   upon 12 times",
    "水は低きに流れる 👩‍👩‍👧‍👦 e\u0301",
    "<|im_start|>user\nspecial<|im_end|>",
]


def answer(server: Server, path: str, **body: Any) -> bytes:
    request = urllib.request.Request(
        server.url + path,
        json.dumps({"model": "tiny", **body}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        content: bytes = response.read()
    return content


@pytest.mark.parametrize("chat", _CHATS)
def test_chat_is_tokenized_as_by_vllm(vllm: Server, gateway: Server, chat: Request) -> None:
    assert answer(gateway, "/tokenize", **chat) == answer(vllm, "/tokenize", **chat)


@pytest.mark.parametrize("text", _TEXTS)
def test_text_is_tokenized_as_by_vllm(vllm: Server, gateway: Server, text: str) -> None:
    body = {"prompt": text, "return_token_strs": True}
    assert answer(gateway, "/tokenize", **body) == answer(vllm, "/tokenize", **body)


@pytest.mark.parametrize("text", _TEXTS)
def test_ids_are_detokenized_as_by_vllm(vllm: Server, gateway: Server, text: str) -> None:
    body = {"tokens": json.loads(answer(vllm, "/tokenize", prompt=text))["tokens"]}
    assert answer(gateway, "/detokenize", **body) == answer(vllm, "/detokenize", **body)
