"""What a worker answers and how both sides talk; the process around it is tested by the pool."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_pool.bodies import chat
from tests.tokenizer_pool.conftest import EMBEDDED, write_tokenizer
from tokenizer_pool import frames
from tokenizer_pool.chat import Chat, ChatTemplate
from tokenizer_pool.engines import EngineUnavailable, FastEncoder, ReferenceEncoder
from tokenizer_pool.parity import prove_encoder
from tokenizer_pool.requests import Document
from tokenizer_pool.templates import FastTemplate, ReferenceTemplate
from tokenizer_pool.worker import Worker

PARTS = st.lists(st.binary(max_size=2000), min_size=1, max_size=8)


@given(sent=st.lists(PARTS, min_size=1, max_size=3))
def test_frames_arrive_whole_and_in_order(sent: list[list[bytes]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for parts in sent:
            ours.sendall(frames.pack(parts))
        assert [frames.receive(theirs) for _ in sent] == sent
        ours.close()
        with pytest.raises(EOFError):
            frames.receive(theirs)


async def test_a_frame_that_is_not_ours_ends_the_connection() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.pack([b"a", b""]) + b"\xff\xff\xff\xff")
    assert await frames.read(reader) == [b"a", b""]
    with pytest.raises(ConnectionError):
        await frames.read(reader)


def ask(
    worker: Worker, order: dict[str, Any], *payload: bytes
) -> tuple[dict[str, Any], list[bytes]]:
    head, *rest = worker.answer([json.dumps(order).encode(), *payload])
    return json.loads(head), rest


def test_a_worker_does_what_it_is_told(embedded_artifact: Path) -> None:
    worker = Worker()
    load = {"do": "load", "name": "m", "path": str(embedded_artifact), "cache_bytes": 1 << 20}
    ask(worker, load)
    ask(worker, {"do": "load", "name": "t", "path": None, "cache_bytes": 0})
    prepare = {"do": "prepare", "kind": "chat", "trusted": False, "wanted": {"usage": True}}
    meaning, (text, ids) = ask(worker, prepare, chat("hello"))
    sent = json.loads(ids)["kv_transfer_params"]["prompt_token_ids"]
    assert meaning["prompt_tokens"] == len(sent) > 0
    assert json.loads(text)["messages"][0]["content"] == "hello"
    assert meaning["cache"]["misses"] > 0
    assert meaning["peak_memory"] > 1 << 20
    tokens, (listed,) = ask(worker, {"do": "tokenize"}, b'{"model":"m","prompt":"hello"}')
    assert tokens["count"] == len(json.loads(listed))
    body = b'{"model":"m","tokens":%b}' % listed
    assert json.loads(ask(worker, {"do": "detokenize"}, body)[1][0]) == {"prompt": "hello"}
    refused, nothing = ask(worker, prepare, b"{")
    assert "not valid JSON" in refused["invalid"]
    assert nothing == []
    with pytest.raises(AssertionError):
        ask(worker, {"do": "dance"})


def test_the_fast_encoder_is_proved_with_its_cache() -> None:
    special = ["<|im_start|>", "<|im_end|>"]
    assert prove_encoder(EMBEDDED / "tokenizer.json", special).fast


def test_a_tokenizer_that_the_fast_engine_does_not_know_keeps_the_reference(
    tmp_path: Path,
) -> None:
    path = write_tokenizer(tmp_path) / "tokenizer.json"
    document = json.loads(path.read_text())
    # A word-level model: every word is one token.
    vocabulary = {"[UNK]": 0, "pool": 1, "of": 2, "water": 3}
    document["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    document |= {"added_tokens": [], "post_processor": None, "decoder": None}
    document["pre_tokenizer"] = {"type": "Whitespace"}
    path.write_text(json.dumps(document))
    proof = prove_encoder(path, [])
    assert not proof.fast
    assert "fastokens" in proof.reason
    assert ReferenceEncoder(path).encode("pool of x", special=True).tolist() == [1, 2, 0]
    path.write_text("{}")
    with pytest.raises(EngineUnavailable):
        FastEncoder(path)


@pytest.mark.parametrize("default", [2.0, 2, 2.5])
def test_numbers_that_the_fast_engine_prints_otherwise_are_left_to_the_reference(
    default: float,
) -> None:
    source = (
        "{% for t in tools %}{% for p in t.function.parameters.properties.values() %}"
        "{{ p.default|tojson }}{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(
        fast=FastTemplate(source),
        fast_floats=False,
        reference=ReferenceTemplate(source),
        wants_parts=False,
        knows_developer=False,
    )
    parameters = {"properties": {"x": {"default": default}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    messages = [{"role": "user", "content": "x"}]
    document = Document({"messages": messages, "tools": tools})
    prompt = Chat(template, template, {}).prompt(document)
    assert prompt == str(default)
