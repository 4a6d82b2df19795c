"""The bytes of answers: vLLM's chunks and documents, field by field in its order.

A chunk carries the fields that vLLM sets explicitly, null or not, and no others.
"""

import time
import uuid
from typing import Any, Protocol

import orjson

from bench.fake_vllm.answers import Answer
from bench.fake_vllm.asks import Ask

DONE = b"data: [DONE]\n\n"


class Wire(Protocol):
    """One answer's format. `end` is what a stream ends with."""

    end: bytes

    def opening(self, index: int) -> bytes:
        """What a choice begins with, before its first token."""
        ...

    def token(self, index: int, position: int) -> bytes:
        """The event of one token."""
        ...

    def usage(self) -> bytes:
        """The event that closes a stream with `include_usage`."""
        ...

    def document(self) -> bytes:
        """The whole answer of a request that is not streamed."""
        ...


def event(document: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(document)


class Base:
    """What the formats have in common. `end` closes a stream."""

    end = DONE

    def __init__(self, model: str, ask: Ask, answers: list[Answer], prefix: str) -> None:
        self._ask = ask
        self._answers = answers
        self._id = f"{prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }

    def _text(self) -> str:
        return "".join(self._answers[0].pieces)

    def _finish(self, index: int, position: int) -> str | None:
        answer = self._answers[index]
        return answer.finish_reason if position == len(answer.ids) - 1 else None

    def _token_ids(self, index: int, position: int) -> list[int] | None:
        return [self._answers[index].ids[position]] if self._ask.return_token_ids else None

    def _usage(self) -> dict[str, int]:
        """`n` answers share each prompt, which vLLM counts once."""
        prompts = {id(prompt): len(prompt) for prompt in self._ask.prompts}
        prompt = sum(prompts.values())
        completion = sum(len(answer.ids) for answer in self._answers)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }


class ChatWire(Base):
    """`/v1/chat/completions`."""

    def __init__(self, model: str, ask: Ask, answers: list[Answer]) -> None:
        super().__init__(model, ask, answers, "chatcmpl")

    def _chunk(self, **fields: Any) -> bytes:
        return event(self._head("chat.completion.chunk") | fields)

    def opening(self, index: int) -> bytes:
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        ids = self._ask.prompts[index] if self._ask.return_token_ids else None
        return self._chunk(choices=[choice], prompt_token_ids=ids, prompt_text=None)

    def token(self, index: int, position: int) -> bytes:
        finish = self._finish(index, position)
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": self._answers[index].pieces[position]},
            "logprobs": None,
            "finish_reason": finish,
        }
        if finish is not None:
            choice["stop_reason"] = None
        choice["token_ids"] = self._token_ids(index, position)
        return self._chunk(choices=[choice])

    def usage(self) -> bytes:
        return self._chunk(choices=[], usage=self._usage())

    def document(self) -> bytes:
        choices = [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": "".join(answer.pieces),
                    "refusal": None,
                    "annotations": None,
                    "audio": None,
                    "function_call": None,
                    "reasoning": None,
                },
                "logprobs": None,
                "finish_reason": answer.finish_reason,
                "stop_reason": None,
                "token_ids": answer.ids if self._ask.return_token_ids else None,
                "routed_experts": None,
            }
            for index, answer in enumerate(self._answers)
        ]
        rest = {
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": None,
            "usage": self._usage() | {"prompt_tokens_details": None},
            "prompt_logprobs": None,
            "prompt_token_ids": self._ask.prompts[0] if self._ask.return_token_ids else None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
        return orjson.dumps(self._head("chat.completion") | rest)


class CompletionWire(Base):
    """`/v1/completions`."""

    def __init__(self, model: str, ask: Ask, answers: list[Answer]) -> None:
        super().__init__(model, ask, answers, "cmpl")

    def _chunk(self, **fields: Any) -> bytes:
        return event(self._head("text_completion") | fields)

    def opening(self, index: int) -> bytes:
        return b""

    def token(self, index: int, position: int) -> bytes:
        first = position == 0 and self._ask.return_token_ids
        choice = {
            "index": index,
            "text": self._answers[index].pieces[position],
            "logprobs": None,
            "finish_reason": self._finish(index, position),
            "stop_reason": None,
            "prompt_token_ids": self._ask.prompts[index] if first else None,
            "token_ids": self._token_ids(index, position),
        }
        return self._chunk(choices=[choice])

    def usage(self) -> bytes:
        return self._chunk(choices=[], usage=self._usage())

    def document(self) -> bytes:
        choices = [
            {
                "index": index,
                "text": "".join(answer.pieces),
                "logprobs": None,
                "finish_reason": answer.finish_reason,
                "stop_reason": None,
                "token_ids": answer.ids if self._ask.return_token_ids else None,
                "prompt_logprobs": None,
                "prompt_token_ids": self._ask.prompts[index]
                if self._ask.return_token_ids
                else None,
                "routed_experts": None,
            }
            for index, answer in enumerate(self._answers)
        ]
        rest = {
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": None,
            "usage": self._usage() | {"prompt_tokens_details": None},
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
        return orjson.dumps(self._head("text_completion") | rest)
