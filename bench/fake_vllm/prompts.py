"""Text to ids as vLLM does it by default: normalise messages, Jinja, `tokenizers`.

Written without looking at `tokenizer_pool`, so that the two can be checked against each other.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from bench.fake_vllm.errors import Refused

MEDIA_PARTS = frozenset(
    {"image_url", "input_image", "image", "input_audio", "audio_url", "video_url"}
)
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


class Prompts:
    """One tokenizer directory: `tokenizer.json`, its configuration and its chat template."""

    def __init__(self, directory: Path, *, media_tokens: int | None = None) -> None:
        self._media = None if media_tokens is None else " water" * media_tokens
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.vocabulary: int = self.tokenizer.get_vocab_size()
        config = json.loads((directory / "tokenizer_config.json").read_text())
        self._special = {
            key: _token(config.get(key)) for key in ("bos_token", "eos_token", "pad_token")
        }
        self.eos: int | None = self.tokenizer.token_to_id(self._special["eos_token"] or "")
        self._template = _environment().from_string(_template_source(directory, config))

    def render(self, body: dict[str, Any]) -> str:
        """A chat request's prompt as text. Raises Refused for what the template cannot say."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused("`messages` must be a non-empty list.", "messages")
        if body.get("continue_final_message"):
            raise Refused("The simulated server cannot continue a message.", "messages")
        context = {
            **self._special,
            "add_generation_prompt": body.get("add_generation_prompt", True),
            **(body.get("chat_template_kwargs") or {}),
            "messages": [_message(message, self._media) for message in messages],
            "tools": _tools(body.get("tools")),
        }
        try:
            return self._template.render(context)
        except TemplateError as error:
            raise Refused(str(error)) from error

    def encode(self, text: str, *, special: bool, wrongly: bool = False) -> list[int]:
        """`wrongly` puts a token in front that does not belong there."""
        ids: list[int] = self.tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids
        return [0, *ids] if wrongly else ids

    def decode(self, ids: Sequence[int], *, special: bool) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=not special)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token's share of the text; a character of several tokens comes with its last.

        Right for byte-level tokenizers, which decode a token alike wherever it stands.
        """
        texts: list[str] = []
        held: list[int] = []
        for token in ids:
            held.append(token)
            text = self.decode(held, special=False)
            if text.endswith("\ufffd"):
                texts.append("")
            else:
                texts.append(text)
                held.clear()
        return texts


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    return environment


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _template_source(directory: Path, config: dict[str, Any]) -> str:
    beside = directory / "chat_template.jinja"
    if beside.exists():
        return beside.read_text()
    return str(config["chat_template"])


def _token(entry: Any) -> str | None:
    text = entry["content"] if isinstance(entry, dict) else entry
    return None if text is None else str(text)


def _message(message: Any, media: str | None) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("Each message must be an object with a role.", "messages")
    normal = {"role": message["role"], "content": _text(message.get("content"), media)}
    if message["role"] == "assistant":
        if calls := message.get("tool_calls"):
            normal["tool_calls"] = [_call(call) for call in calls]
        if (reasoning := message.get("reasoning")) is not None:
            normal |= {"reasoning": reasoning, "reasoning_content": reasoning}
    if message["role"] == "tool" and "tool_call_id" in message:
        normal["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        normal["name"] = message["name"]
    return normal


def _text(content: Any, media: str | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise Refused("A message's content must be a text or a list of parts.", "messages")
    parts = [part if isinstance(part, str) else _part(part, media) for part in content]
    return "\n".join(part for part in parts if part)


def _part(part: Any, media: str | None) -> str:
    kind = part.get("type") if isinstance(part, dict) else part
    if kind in MEDIA_PARTS and media is not None:
        return media
    if kind not in TEXT_PARTS:
        raise Refused(f"The simulated server takes text only, not {kind!r}.", "messages")
    return part.get("refusal" if kind == "refusal" else "text") or ""


def is_text(messages: Any) -> bool:
    """Whether no message has a part that is not text; what is malformed counts as text."""
    contents = [m.get("content") for m in messages or [] if isinstance(m, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return all(part.get("type") in TEXT_PARTS for part in parts if isinstance(part, dict))


def _call(call: Any) -> dict[str, Any]:
    function = _function(call, "tool_calls")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except json.JSONDecodeError:
            arguments = {}
    return {**call, "function": {**function, "arguments": arguments}}


def _function(entry: Any, param: str) -> dict[str, Any]:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused("A function with a name is required.", param)
    return function


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    """As vLLM's request model dumps them: a missing description or schema appears as null."""
    if tools is None:
        return None
    known = ("name", "description", "parameters", "strict")
    functions = [_function(tool, "tools") for tool in tools]
    return [
        {
            "type": "function",
            "function": {
                key: function.get(key)
                for key in known
                if key != "strict" or function.get(key) is not None
            },
        }
        for function in functions
    ]
