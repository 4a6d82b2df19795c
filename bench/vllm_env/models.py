"""Makes the two models of the real-vLLM tests; runs inside the vLLM environment.

    python -m bench.vllm_env.models GGUF OUT      writes OUT/smollm2 and OUT/tiny

`smollm2` is SmolLM2-135M-Instruct, converted: it answers sensibly. `tiny` is a random Llama of
30 MB: it makes the engine nearly free, so that tests measure everything around it.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GgufConfig, LlamaConfig, LlamaForCausalLM

from bench.vllm_env import smollm2

_SEED = 20261130
_TINY_POSITIONS = 131_072
_SMOLLM2_POSITIONS = 8_192
_HERE = Path(__file__).parent


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    vocabulary = smollm2.Vocabulary(source)
    _convert_smollm2(source, target / "smollm2", vocabulary)
    _make_tiny(target / "tiny", vocabulary)


def _convert_smollm2(source: Path, target: Path, vocabulary: smollm2.Vocabulary) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(gguf_file=source.name, dequantize=True),
        dtype=torch.float32,
    )
    # The weights were quantised to 4 and 8 bits: half precision loses nothing, and half the disk.
    model.to(torch.float16).save_pretrained(target)
    # What vLLM takes for requests that do not say: drawn at temperature 1, so small a model
    # wanders off, and without a limit it may not come back.
    defaults = {
        "eos_token_id": model.config.eos_token_id,
        "temperature": 0.0,
        "max_new_tokens": 512,
    }
    (target / "generation_config.json").write_text(json.dumps(defaults, indent=2) + "\n")
    _save_tokenizer(
        target,
        vocabulary,
        template=vocabulary.chat_template,
        tokenizer_class="PreTrainedTokenizerFast",
        max_length=_SMOLLM2_POSITIONS,
    )


def _make_tiny(target: Path, vocabulary: smollm2.Vocabulary) -> None:
    torch.manual_seed(_SEED)
    eos = vocabulary.tokens.index(vocabulary.eos)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary.tokens),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=_TINY_POSITIONS,
            # Untied and wide, so that the answer depends on the whole prompt: with the usual values
            # a model of this size repeats its last token whatever was asked.
            tie_word_embeddings=False,
            initializer_range=0.2,
            bos_token_id=vocabulary.tokens.index(vocabulary.bos),
            eos_token_id=eos,
            pad_token_id=eos,
        )
    )
    model.to(torch.float32).save_pretrained(target)
    _save_tokenizer(
        target,
        vocabulary,
        template=(_HERE / "tools_template.jinja").read_text(),
        # As SmolLM2 is published: transformers 5 then drops the digit rule of tokenizer.json, so
        # a gateway that reads the file instead of asking transformers counts digits wrongly.
        tokenizer_class="GPT2Tokenizer",
        max_length=_TINY_POSITIONS,
    )


def _save_tokenizer(
    target: Path,
    vocabulary: smollm2.Vocabulary,
    *,
    template: str,
    tokenizer_class: str,
    max_length: int,
) -> None:
    smollm2.build(vocabulary).save(str(target / "tokenizer.json"))
    config = smollm2.config(vocabulary, tokenizer_class=tokenizer_class, max_length=max_length)
    (target / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (target / "chat_template.jinja").write_text(template)


if __name__ == "__main__":
    main()
