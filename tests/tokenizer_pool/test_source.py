"""Where tokenizers come from, and what is kept of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_pool.bodies import chat
from tests.tokenizer_pool.conftest import EMBEDDED, write_tokenizer
from tokenizer_pool import requests
from tokenizer_pool.artifact import load_model, read_artifact
from tokenizer_pool.errors import TokenizerUnavailable
from tokenizer_pool.extract import barriers
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import Kind, TokenizerSource


async def test_a_model_without_tokenizer_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for location, message in (
        ("/no/such/directory", "not a directory on this machine"),
        ("nobody/nothing", "HF_HUB_OFFLINE is set"),
        (tmp_path, "tokenizer"),
    ):
        with pytest.raises(TokenizerUnavailable, match=message):
            await artifact_path(TokenizerSource("x", location), tmp_path / "cache", limit=60)


async def test_a_hub_id_is_taken_from_the_local_cache(
    cache_dir: Path, embedded_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / "abc").symlink_to(EMBEDDED)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    source = TokenizerSource("hub", "org/name")
    assert await artifact_path(source, cache_dir, limit=60) == embedded_artifact


async def test_an_artifact_is_made_once_and_anew_when_a_source_changes(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path / "model")
    cache = tmp_path / "cache"
    source = TokenizerSource("m", directory)
    first = await artifact_path(source, cache, limit=60)
    stamp = (first / "artifact.json").stat().st_mtime_ns
    assert await artifact_path(source, cache, limit=60) == first
    assert (first / "artifact.json").stat().st_mtime_ns == stamp
    write_tokenizer(directory, {"default": "{{ messages[0].content }}", "tool_use": "tools"})
    second = await artifact_path(source, cache, limit=60)
    assert second != first
    assert read_artifact(second).templates["tool_use"] == "tools"
    assert sorted(cache.iterdir()) == sorted((first, second))
    model = load_model("m", second, on_loop=False)
    tools = [{"type": "function", "function": {"name": "f"}}]
    plain = model.prepare(Kind.CHAT, requests.parse(chat("pool"), Kind.CHAT))
    with_tools = model.prepare(Kind.CHAT, requests.parse(chat("x", tools=tools), Kind.CHAT))
    assert plain.ids != with_tools.ids
    # A plain prompt begins with the tokenizer's own first token, a chat only when asked to.
    prompts = [
        model.prepare(Kind.COMPLETION, requests.parse(b'{"prompt":"pool"}', Kind.COMPLETION)),
        model.prepare(Kind.CHAT, requests.parse(chat("pool", add_special_tokens=True), Kind.CHAT)),
    ]
    assert {prompt.prompt_tokens for prompt in prompts} == {plain.prompt_tokens + 1}


@pytest.mark.parametrize(
    ("config", "files", "reasons"),
    [
        ({"model_type": "llama"}, [], (None, None)),
        ({"model_type": "gpt_oss"}, [], ("harmony", None)),
        ({"architectures": ["DeepseekV32ForCausalLM"]}, [], ("deepseek_v32", None)),
        ({}, ["tekken.json"], (None, None)),
        ({}, ["tekken.json", "consolidated-1.safetensors"], ("mistral", "mistral")),
    ],
)
def test_models_that_vllm_renders_by_its_own_code_go_as_text(
    tmp_path: Path, config: Any, files: list[str], reasons: tuple[str | None, str | None]
) -> None:
    for name in files:
        (tmp_path / name).touch()
    for barrier, reason in zip(barriers(tmp_path, config), reasons, strict=True):
        assert (barrier is None) if reason is None else (reason in str(barrier))
