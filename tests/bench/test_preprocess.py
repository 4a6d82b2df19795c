"""The workload of `bench preprocess` is what it says; its figures are for a quiet machine."""

import json
import random
from pathlib import Path

import pytest
import typer

from bench import preprocess

TOKENIZER = Path(preprocess.__file__).parent / "data" / "tokenizer"


def text(_rng: random.Random, size: int) -> str:
    return "water " * (size // 6) + "x" * (size % 6)


@pytest.mark.parametrize(("size", "turns"), [(400, 1), (6_000, 6), (60_000, 100)])
def test_a_conversation_has_its_turns_and_size(size: int, turns: int) -> None:
    messages = preprocess.conversation(text, random.Random(0), size, turns)
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user"] + ["assistant", "user"] * (turns - 1)
    assert sum(len(message["content"]) for message in messages) == pytest.approx(size, rel=0.2)


def test_bodies_have_the_tokens_that_their_case_names(tmp_path: Path) -> None:
    with preprocess.child("ours", TOKENIZER, tmp_path) as ours:
        asked = preprocess.bodies(ours, text, "2k")
        counts = ours.ask(bodies=asked, seconds=0)["tokens"]
        assert all(count == pytest.approx(2_000, rel=0.05) for count in counts)
        document = json.loads(asked[0])
        assert len(document["tools"]) == 4
        figures = preprocess.ratio(ours, ours, asked[:1], seconds=0)
        assert figures["theirs_ms"] > 0
        assert figures["ratio"] == pytest.approx(figures["theirs_ms"] / figures["ours_ms"])


def test_a_child_that_ends_ends_the_command(tmp_path: Path) -> None:
    with preprocess.child("ours", tmp_path, tmp_path) as broken, pytest.raises(typer.Exit):
        broken.ask(bodies=[], seconds=0)
