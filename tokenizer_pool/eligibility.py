"""Which requests may travel as token ids: the explicit list, and nothing but the list.

Read against vLLM 0.32 (docs/adr/ids-beside-empty-messages.md). Everything whose ids are not
provably those that vLLM would compute, and everything whose answer would change because
`messages` is empty, goes as text. The rules are tables, so that a reader sees at a glance what is
treated how.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Ineligible:
    """Why a request goes as text, and whether our count of its prompt still is vLLM's."""

    reason: str
    exact: bool = True


class Unproved(Exception):
    """The shape is not proved equal to vLLM's reading of it."""

    def __init__(self, verdict: Ineligible) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class _Rule:
    """A field matters unless its value is one of `neutral`."""

    neutral: tuple[object, ...]
    verdict: Ineligible


_COMMON: Final[dict[str, _Rule]] = {
    "truncate_prompt_tokens": _Rule((None,), Ineligible("truncate_prompt_tokens")),
    # Without the field above it says nothing.
    "truncation_side": _Rule((None, "left", "right"), Ineligible("truncation_side", exact=False)),
    "use_beam_search": _Rule((False,), Ineligible("beam search")),
    "echo": _Rule((None, False), Ineligible("echo needs the text of the prompt")),
    "media_io_kwargs": _Rule((None,), Ineligible("media_io_kwargs", exact=False)),
    "mm_processor_kwargs": _Rule((None,), Ineligible("mm_processor_kwargs", exact=False)),
}

_CHAT: Final[dict[str, _Rule]] = _COMMON | {
    # The response's role is read from the last message.
    "add_generation_prompt": _Rule((True,), Ineligible("add_generation_prompt is off")),
    "continue_final_message": _Rule((False,), Ineligible("continue_final_message")),
    "chat_template": _Rule((None,), Ineligible("the request brings its own template", exact=False)),
    "return_prompt_text": _Rule((None, False), Ineligible("return_prompt_text")),
    # The ids themselves travel in this field.
    "kv_transfer_params": _Rule((None,), Ineligible("the client set kv_transfer_params")),
}

_COMPLETION: Final[dict[str, _Rule]] = _COMMON | {
    "suffix": _Rule((None,), Ineligible("suffix", exact=False)),
    "prompt_embeds": _Rule((None,), Ineligible("prompt_embeds", exact=False)),
}

# Fields that vLLM reads without any effect on the prompt, and OpenAI's that it ignores.
_HARMLESS: Final = frozenset(
    [
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "n",
        "seed",
        "stop",
        "user",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "length_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "logprob_token_ids",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "stop_token_ids",
        "include_stop_str_in_output",
        "ignore_eos",
        "skip_special_tokens",
        "watermarking",
        "spaces_between_special_tokens",
        "allowed_token_ids",
        "bad_words",
        "response_format",
        "structured_outputs",
        "add_special_tokens",
        "priority",
        "request_id",
        "session_id",
        "return_tokens_as_token_ids",
        "return_token_ids",
        "routed_experts_prompt_start",
        "return_token_offsets",
        "mm_payload",
        "return_mm_kwargs",
        "cache_salt",
        "kv_transfer_params",
        "ec_transfer_params",
        "vllm_xargs",
        "repetition_detection",
        "thinking_token_budget",
        "stream_interval",
        "store",
        "metadata",
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
    ]
)
_CHAT_HARMLESS: Final = _HARMLESS - frozenset(_CHAT) | frozenset(
    [
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "include_reasoning",
        "documents",
        "chat_template_kwargs",
    ]
)

# Arguments of the renderer itself, which a template argument of the same name would override.
RESERVED_TEMPLATE_ARGUMENTS: Final = frozenset(
    [
        "self",
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "tokenize",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    ]
)

# Model types and architectures that vLLM renders by code of its own, not by a template.
OWN_RENDERERS: Final[dict[str, str]] = {
    "gpt_oss": "harmony",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "MoonshotKimiaForCausalLM": "kimi_audio",
    "InklingForCausalLM": "inkling",
    "InklingForConditionalGeneration": "inkling",
}

# vLLM numbers these models' tool calls by counting those in `messages`.
COUNTS_TOOL_CALLS: Final = frozenset({"kimi_k2", "kimi_k25", "kimi_k3"})

MEDIA: Final = Ineligible("a content part is not text", exact=False)
MESSAGE_FIELD: Final = Ineligible("a message has a field or shape not proved equal", exact=False)
TOOL_SHAPE: Final = Ineligible("a tool has a shape not proved equal", exact=False)
# Whether the tools are rendered then is a flag of the server.
TOOL_CHOICE_NONE: Final = Ineligible("tools with tool_choice none", exact=False)
TOOL_CALL_COUNT: Final = Ineligible("the model's tool call ids count the history")
RESERVED_ARGUMENT: Final = Ineligible("chat_template_kwargs names a renderer argument", exact=False)
TEMPLATE_ERROR: Final = Ineligible("the template refused the messages", exact=False)
PROMPT_LIST: Final = Ineligible("several prompts in one request")
NO_TOKENIZER: Final = Ineligible("no tokenizer", exact=False)
NO_TOKENS: Final = Ineligible("the prompt has no tokens")


def _verdict(
    document: Mapping[str, Any], rules: Mapping[str, _Rule], harmless: frozenset[str]
) -> Ineligible | None:
    if document.keys() <= harmless:  # nearly always, in one call
        return None
    for name, value in document.items():
        rule = rules.get(name)
        if rule is not None:
            if value not in rule.neutral:
                return rule.verdict
        elif name not in harmless:
            return Ineligible(f"unknown field {name[:64]!r}", exact=False)
    return None


def chat_verdict(document: Mapping[str, Any]) -> Ineligible | None:
    """What the top-level fields of a chat request say; None when they allow ids."""
    return _verdict(document, _CHAT, _CHAT_HARMLESS)


def completion_verdict(document: Mapping[str, Any]) -> Ineligible | None:
    """What the top-level fields of a completion request say; None when they allow ids."""
    return _verdict(document, _COMPLETION, _HARMLESS)
