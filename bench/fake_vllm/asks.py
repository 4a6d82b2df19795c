"""What a request asks for: the fields of vLLM's request models that a simulated engine heeds."""

from dataclasses import dataclass
from typing import Any

import orjson

from bench.fake_vllm.errors import Refused, too_long, unknown_model
from bench.fake_vllm.faults import Faults, Mode
from bench.fake_vllm.options import Options
from bench.fake_vllm.prompts import Prompts, is_text

TYPES: dict[str, type] = {
    "model": str,
    "max_tokens": int,
    "max_completion_tokens": int,
    "n": int,
    "stream": bool,
    "stream_options": dict,
    "kv_transfer_params": dict,
    "chat_template_kwargs": dict,
    "tools": list,
}
"""What these fields must be, where they are not null."""

IDS_FIELD = "kv_transfer_params.prompt_token_ids"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `prompts` has one entry for each choice that will be answered."""

    prompts: list[list[int]]
    max_tokens: list[int]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    endless: bool


class Reader:
    """Turns bodies into Asks. Raises Refused."""

    def __init__(self, options: Options, prompts: Prompts, faults: Faults) -> None:
        self._options = options
        self._prompts = prompts
        self._faults = faults

    def parse(self, raw: bytes) -> dict[str, Any]:
        """The body as an object that names a model served here, or none."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise Refused(f"The body is not valid JSON: {error}") from error
        if not isinstance(body, dict):
            raise Refused("The body must be a JSON object.")
        for name, kind in TYPES.items():
            if body.get(name) is not None and not isinstance(body[name], kind):
                raise Refused(f"`{name}` is not of type {kind.__name__}.", name)
        if body.get("model") not in (None, "", self._options.model, *self._options.adapters):
            raise unknown_model(body["model"])
        return body

    def chat(self, body: dict[str, Any]) -> Ask:
        limit = body.get("max_completion_tokens")
        limit = body.get("max_tokens") if limit is None else limit
        return self._ask(body, [self._chat_prompt(body)], limit)

    def completion(self, body: dict[str, Any]) -> Ask:
        if body.get("echo"):
            raise Refused("The simulated server does not echo.", "echo")
        limit = body.get("max_tokens")
        return self._ask(body, self._prompt(body.get("prompt")), 16 if limit is None else limit)

    def tokenize(self, body: dict[str, Any]) -> list[int]:
        """The ids that this server would run for a text (`prompt`) or a chat (`messages`)."""
        wrongly = self._faults.hit(Mode.WRONG_TOKENIZER)
        chat = "messages" in body
        text = self._prompts.render(body) if chat else body.get("prompt")
        special = body.get("add_special_tokens", not chat)
        if not isinstance(text, str):
            raise Refused("Either `prompt` or `messages` is required.", "prompt")
        return self._prompts.encode(text, special=special, wrongly=wrongly)

    def checked(self, ids: Any, param: str) -> list[int]:
        """The ids, when they are ids of this vocabulary."""
        if not isinstance(ids, list) or not ids or set(map(type, ids)) != {int} or min(ids) < 0:
            raise Refused(f"`{param}` must be a non-empty list of non-negative integers.", param)
        if max(ids) >= self._prompts.vocabulary:
            raise Refused(f"Token id {max(ids)} is out of vocabulary", param)
        return ids

    def _chat_prompt(self, body: dict[str, Any]) -> list[int]:
        ids = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        if ids is not None and not self._faults.hit(Mode.IGNORE_IDS):
            if self._faults.hit(Mode.REFUSE_IDS):
                raise Refused("This server takes no token ids.", IDS_FIELD)
            if not body.get("echo") and is_text(body.get("messages")):
                used = len(ids) // 2 if self._faults.hit(Mode.TRUNCATE_IDS) else None
                return self.checked(ids, IDS_FIELD)[:used]
        return self.tokenize(body)

    def _prompt(self, prompt: Any) -> list[list[int]]:
        """A completion's prompts: a text, ids, or a list of one of these."""
        several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
        return [self._one_prompt(one) for one in (prompt if several else [prompt])]

    def _one_prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenize({"prompt": prompt})
        if self._faults.hit(Mode.REFUSE_IDS):
            raise Refused("This server takes no token ids.", "prompt")
        return self.checked(prompt, "prompt")

    def _ask(self, body: dict[str, Any], prompts: list[list[int]], limit: int | None) -> Ask:
        context = self._options.max_model_len
        if not all(prompts):
            raise Refused("The prompt must not be empty.", "prompt")
        for prompt in prompts:
            if len(prompt) > context:
                raise too_long(len(prompt), context)
        room = [context - len(prompt) for prompt in prompts]
        max_tokens = room if limit is None else [min(limit, left) for left in room]
        if min(max_tokens) < 1:
            raise Refused(f"max_tokens must be at least 1, got {min(max_tokens)}.", "max_tokens")
        n = body.get("n") or 1
        return Ask(
            prompts=[prompt for prompt in prompts for _ in range(n)],
            max_tokens=[tokens for tokens in max_tokens for _ in range(n)],
            stream=bool(body.get("stream")),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            return_token_ids=bool(body.get("return_token_ids")),
            endless=bool(body.get("ignore_eos")),
        )
