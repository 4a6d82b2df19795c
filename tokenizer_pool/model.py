"""One model, ready to tokenize: a body in, a TokenizedPrompt or a TokenList out.

Runs the same in a worker process and on the event loop. Engines are given; whether they may be
used is decided at registration (parity), whether ids may travel by eligibility.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tokenizer_pool import requests, upstream
from tokenizer_pool.chat import Chat
from tokenizer_pool.eligibility import (
    MEDIA,
    NO_TOKENIZER,
    NO_TOKENS,
    PROMPT_LIST,
    TEMPLATE_ERROR,
    TOOL_CALL_COUNT,
    TOOL_CHOICE_NONE,
    Ineligible,
    Unproved,
    chat_verdict,
    completion_verdict,
)
from tokenizer_pool.engines import EncodeEngine, Ids, ReferenceEncoder, ids_json
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.media import media_in
from tokenizer_pool.messages import estimate
from tokenizer_pool.prefix import prefix_hashes, prefix_hashes_of
from tokenizer_pool.requests import Document
from tokenizer_pool.templates import TemplateRefused
from tokenizer_pool.types import Kind, TokenizedPrompt, TokenList, Wanted

_BYTES_PER_TOKEN: Final = 4
_MAX_ID: Final = 2**32 - 1
_BOTH: Final = Wanted()


@dataclass(slots=True)
class _Prompt:
    """What is known of a prompt: its count, and its ids, which may travel if `verdict` is None.

    Of several prompts `count` is the sum; `longest` is set then.
    """

    count: int
    ids: Ids | list[int] | None = None
    verdict: Ineligible | None = None
    prefix: tuple[int, ...] = ()
    longest: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A served model. Without `encoder` its requests go as text and are counted by guess.

    `reference` loads the reference engine when it is first needed, which alone can decode.
    """

    name: str
    encoder: EncodeEngine | None = None
    reference: Callable[[], ReferenceEncoder] | None = None
    chat: Chat | None = None
    chat_barrier: Ineligible | None = None
    completion_barrier: Ineligible | None = None
    counts_tool_calls: bool = False

    def prepare(self, kind: Kind, document: Document, wanted: Wanted = _BOTH) -> TokenizedPrompt:
        """Count the prompt and assemble the upstream bodies that are wanted.

        Raises InvalidRequest, or NeedsReference on the event loop.
        """
        stream = requests.wants_stream(document)
        max_tokens = requests.max_tokens(document, kind)
        prompt = self._chat(document) if kind is Kind.CHAT else self._completion(document.values)
        limit = document.values.get("truncate_prompt_tokens")
        if limit is not None:
            prompt = _truncated(prompt, limit)
        verdict = prompt.verdict
        if verdict is None and not prompt.count:
            verdict = NO_TOKENS
        media = media_in(document.values["messages"]) if verdict is MEDIA else ()
        text, ids, asked = b"", b"", upstream.NOTHING
        if verdict is None and wanted.ids:
            head, asked = upstream.ids_head(document, kind, self.name, wanted)
            ids = upstream.ids_body(kind, head, _listed(prompt.ids))
        if wanted.text or not ids:
            text = upstream.text_body(document, kind, self.name)
        return TokenizedPrompt(
            model=self.name,
            prompt_tokens=prompt.count,
            max_tokens=max_tokens,
            stream=stream,
            exact=verdict is None or verdict.exact,
            ineligible=None if verdict is None else verdict.reason,
            added_usage=asked.usage,
            added_prompt_ids=asked.prompt_ids,
            text=text,
            ids=ids,
            prefix=prompt.prefix,
            longest=prompt.longest or prompt.count,
            media=media,
        )

    def count_chat(self, document: Document) -> tuple[int, Ineligible | None]:
        """The tokens of a chat, and what speaks against the count or against ids.

        Raises InvalidRequest, or NeedsReference on the event loop.
        """
        prompt = self._chat(document)
        return prompt.count, prompt.verdict

    def count_text(self, text: str, *, special: bool) -> int:
        """The tokens of a text; a guess where the tokenizer is not known."""
        return self._encode(text, special, None).count

    def tokenize(self, document: Document) -> TokenList:
        """The ids of a `/tokenize` request (`prompt` or `messages`), as vLLM's would be.

        Raises InvalidRequest, also for what we cannot tokenize exactly as vLLM does.
        """
        values = document.values
        if self.encoder is None:
            raise InvalidRequest(f"the tokenizer of {self.name!r} is not known here", param="model")
        if "messages" not in values:
            text, special = values.get("prompt"), values.get("add_special_tokens", True)
            if not isinstance(text, str):
                raise InvalidRequest("prompt must be a string", param="prompt")
        else:
            text, special = self._tokenize_chat(document), values.get("add_special_tokens", False)
        ids = self.encoder.encode(text, special=bool(special))
        strings = None
        if values.get("return_token_strs") and self.reference is not None:
            strings = requests.dump_strings(self.reference().tokens(ids.tolist()))
        return TokenList(model=self.name, count=len(ids), ids=ids_json(ids), strings=strings)

    def detokenize(self, values: Mapping[str, Any]) -> str:
        """The text of a `/detokenize` request's `tokens`; raises InvalidRequest."""
        tokens: Any = values.get("tokens")
        if self.reference is None:
            raise InvalidRequest(f"the tokenizer of {self.name!r} is not known here", param="model")
        if tokens != [] and (not _is_ids(tokens) or max(tokens) > _MAX_ID):
            raise InvalidRequest("tokens must be a list of token ids", param="tokens")
        return self.reference().decode(tokens)

    def _tokenize_chat(self, document: Document) -> str:
        # vLLM's endpoint knows neither of these two.
        unknown = ("reasoning_effort", "documents")
        known = {name: v for name, v in document.values.items() if name not in unknown}
        if self.chat is None or self.chat_barrier is not None:
            barrier = self.chat_barrier or NO_TOKENIZER
            raise InvalidRequest(f"cannot render these messages: {barrier.reason}")
        try:
            return self.chat.prompt(replace(document, values=known))
        except Unproved as unproved:
            reason = unproved.verdict.reason
            raise InvalidRequest(f"cannot render these messages: {reason}") from unproved
        except TemplateRefused as refused:
            raise InvalidRequest(f"the chat template refused: {refused}") from refused

    def _chat(self, document: Document) -> _Prompt:
        values = document.values
        verdict = self.chat_barrier or chat_verdict(values) or self._tools_verdict(values)
        if self.chat is None or self.encoder is None:
            return _Prompt(estimate(values["messages"]), None, verdict or NO_TOKENIZER)
        try:
            text = self.chat.prompt(document)
        except Unproved as unproved:
            return _Prompt(estimate(values["messages"]), None, unproved.verdict)
        except TemplateRefused:
            return _Prompt(estimate(values["messages"]), None, TEMPLATE_ERROR)
        return self._encode(text, bool(values.get("add_special_tokens")), verdict)

    def _tools_verdict(self, values: Mapping[str, Any]) -> Ineligible | None:
        if values.get("tools") is None:
            return None
        if values.get("tool_choice") == "none":
            return TOOL_CHOICE_NONE
        if self.counts_tool_calls and any(
            isinstance(message, dict) and message.get("tool_calls")
            for message in values["messages"]
        ):
            return TOOL_CALL_COUNT
        return None

    def _completion(self, values: Mapping[str, Any]) -> _Prompt:
        prompt = values["prompt"]
        verdict = self.completion_barrier or completion_verdict(values)
        if _is_ids(prompt):
            # The client's own ids stay as they are, in either channel.
            return _Prompt(len(prompt), prompt, verdict, prefix_hashes_of(prompt))
        if prompt is None and values.get("prompt_embeds") is not None:
            return _Prompt(1, None, verdict)
        special = bool(values.get("add_special_tokens", True))
        if isinstance(prompt, str):
            return self._encode(prompt, special, verdict)
        if not isinstance(prompt, list) or not prompt:
            raise InvalidRequest("prompt must be a string or a list", param="prompt")
        parts = [self._part(part, special) for part in prompt]
        exact = all(part.verdict is None or part.verdict.exact for part in parts)
        verdict = verdict or Ineligible(PROMPT_LIST.reason, exact=exact)
        counts = [part.count for part in parts]
        return _Prompt(sum(counts), None, verdict, longest=max(counts))

    def _part(self, part: Any, special: bool) -> _Prompt:
        """One prompt of several."""
        if isinstance(part, str):
            return self._encode(part, special, None)
        if _is_ids(part):
            return _Prompt(len(part))
        raise InvalidRequest("each prompt must be a string or a list of token ids", param="prompt")

    def _encode(self, text: str, special: bool, verdict: Ineligible | None) -> _Prompt:
        if self.encoder is None:
            count = len(text.encode()) // _BYTES_PER_TOKEN + 1
            return _Prompt(count, None, verdict or NO_TOKENIZER)
        ids = self.encoder.encode(text, special=special)
        return _Prompt(len(ids), ids, verdict, prefix_hashes(ids))


def _listed(ids: Ids | list[int] | None) -> bytes:
    """As JSON. A client's own ids are Python's integers: no vocabulary has limited them."""
    assert ids is not None
    return requests.dump_ids(ids) if isinstance(ids, list) else ids_json(ids)


def _truncated(prompt: _Prompt, limit: Any) -> _Prompt:
    """The prompt as vLLM will cut it to `limit` tokens; -1 stands for a length unknown here."""
    if prompt.verdict is None:
        return prompt
    if type(limit) is int and limit >= 0:
        return replace(prompt, count=min(prompt.count, limit), prefix=())
    return replace(prompt, verdict=replace(prompt.verdict, exact=False), prefix=())


def _is_ids(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(type(token) is int and token >= 0 for token in prompt)
    )
