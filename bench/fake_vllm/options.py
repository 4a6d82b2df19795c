"""What a simulated server is told at its start."""

from dataclasses import dataclass
from pathlib import Path

from bench.engine import SERIAL, EngineSpec

TOKENIZER = Path(__file__).resolve().parent.parent / "data" / "tokenizer"
"""The tokenizer in the repository: 8,192 tokens, ChatML, tools."""

VERSION = "0.32.0"
"""The vLLM version whose API is spoken, and whose answers to `/version` are given."""


@dataclass(frozen=True, slots=True)
class Options:
    """`max_num_queued_reqs` bounds the unfinished requests (None: no bound), as vLLM's flag does.

    `model` is the served name; `keep_alive` the seconds after which an idle connection is closed.
    `adapters` are names of LoRA adapters that are served, too. A picture or sound costs
    `media_tokens` (None: the model takes text only). `pooling`: the model does not generate.
    `gpu_memory_utilization` is told in `/metrics`, and changes nothing here.
    """

    model: str = "forebay-demo"
    tokenizer: Path = TOKENIZER
    max_model_len: int = 32_768
    engine: EngineSpec = SERIAL
    prefix_caching: bool = True
    max_num_queued_reqs: int | None = None
    keep_alive: float = 5.0
    adapters: tuple[str, ...] = ()
    media_tokens: int | None = None
    pooling: bool = False
    gpu_memory_utilization: float | None = None

    def __post_init__(self) -> None:
        blocks = self.engine.kv_tokens // self.engine.block_tokens
        if self.max_model_len > blocks * self.engine.block_tokens:
            raise ValueError(
                f"max_model_len {self.max_model_len} does not fit the KV cache of "
                f"{self.engine.kv_tokens} tokens"
            )
