"""Tokenizers that need no download: one trained here in a second, and the embedded one."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from tokenizer_pool.artifact import load_model
from tokenizer_pool.model import Model
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import PoolSettings, TokenizerSource

EMBEDDED = Path(__file__).parents[2] / "bench" / "data" / "tokenizer"

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_SPECIAL = ["<|bos|>", "<|im_start|>", "<|im_end|>"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What asks vLLM itself runs only when asked for by `-m real_vllm`."""
    if "real_vllm" not in (config.option.markexpr or ""):
        skip = pytest.mark.skip(reason="needs a real vLLM: make test-vllm")
        for item in items:
            if item.path.parent == Path(__file__).parent and item.get_closest_marker("real_vllm"):
                item.add_marker(skip)


def write_tokenizer(directory: Path, template: str | dict[str, str] | None = CHATML) -> Path:
    """A byte-level BPE tokenizer that puts `<|bos|>` before plain prompts."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the pool of water upstream of the turbines"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.token_to_id("<|bos|>"))]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|im_end|>",
    }
    if isinstance(template, str):
        config["chat_template"] = template
    elif template is not None:
        config["chat_template"] = [{"name": n, "template": t} for n, t in template.items()]
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text('{"model_type": "llama"}')
    return directory


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact cache for all tests, so that each tokenizer is extracted once."""
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def embedded_artifact(cache_dir: Path) -> Path:
    source = TokenizerSource("m", EMBEDDED)
    return asyncio.run(artifact_path(source, cache_dir, limit=120))


@pytest.fixture(scope="session")
def model(embedded_artifact: Path) -> Model:
    """The embedded tokenizer as a worker has it."""
    return load_model("m", embedded_artifact, on_loop=False)


@pytest.fixture(scope="session")
def slow_template_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template the fast engine cannot compile, and that can be made to hang."""
    template = (
        "{% generation %}{% if messages[-1].content == 'hang' %}{% for a in range(99999) %}"
        "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
        "{{ messages[-1].content }}{% endgeneration %}"
    )
    return write_tokenizer(tmp_path_factory.mktemp("slow"), template)


@asynccontextmanager
async def running_pool(settings: PoolSettings) -> AsyncIterator[TokenizerPool]:
    """A started pool with the embedded model as `m`; at the end no task runs or has failed."""
    tasks: list[asyncio.Task[None]] = []

    def spawn(name: str, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        tasks.append(task)
        return task

    pool = TokenizerPool(settings, spawn)
    await pool.start()
    try:
        await pool.add_model(TokenizerSource("m", EMBEDDED))
        yield pool
    finally:
        await pool.stop()
    for task in tasks:
        assert task.done()
        assert task.cancelled() or task.exception() is None


MakePool = Callable[..., Coroutine[Any, Any, TokenizerPool]]


@pytest.fixture
async def make_pool(cache_dir: Path, embedded_artifact: Path) -> AsyncIterator[MakePool]:
    """`await make_pool(**settings)`: a pool of its own, stopped at the end of the test."""
    async with AsyncExitStack() as stack:

        async def make(**settings: Any) -> TokenizerPool:
            pool = running_pool(PoolSettings(cache_dir=cache_dir, **settings))
            return await stack.enter_async_context(pool)

        yield make
