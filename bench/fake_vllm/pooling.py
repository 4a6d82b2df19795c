"""Embeddings, scores and the like of a simulated vLLM: counted truly, computed from hashes."""

import base64
import struct
import time
import uuid
import zlib
from typing import Any

from bench.fake_vllm.asks import Reader
from bench.fake_vllm.errors import Refused, too_long

Body = dict[str, Any]
DIMENSIONS = 8


class Pooling:
    """Answers to bodies; raises Refused."""

    def __init__(self, model: str, reader: Reader, max_model_len: int) -> None:
        self._model = model
        self._reader = reader
        self._limit = max_model_len

    def embeddings(self, body: Body) -> Body:
        prompts = self._prompts(body)
        vectors = [_vector(ids) for ids in prompts]
        encoded = body.get("encoding_format") == "base64"
        data = [
            {"index": n, "object": "embedding", "embedding": _packed(v) if encoded else v}
            for n, v in enumerate(vectors)
        ]
        return self._answer("embd", data, prompts)

    def pooling(self, body: Body) -> Body:
        prompts = self._prompts(body)
        data = [
            {"index": n, "object": "pooling", "data": _vector(ids)} for n, ids in enumerate(prompts)
        ]
        return self._answer("pool", data, prompts)

    def classify(self, body: Body) -> Body:
        prompts = self._prompts(body)
        data = [
            {"index": n, "label": "LABEL_0", "probs": [0.75, 0.25], "num_classes": 2}
            for n in range(len(prompts))
        ]
        return self._answer("classify", data, prompts)

    def score(self, body: Body) -> Body:
        left = _texts(body, "queries", "text_1", "data_1")
        right = _texts(body, "documents", "items", "text_2", "data_2")
        scores, prompts = self._scores(left, right)
        data = [{"index": n, "object": "score", "score": s} for n, s in enumerate(scores)]
        return self._answer("score", data, prompts)

    def rerank(self, body: Body) -> Body:
        documents = _texts(body, "documents")
        scores, prompts = self._scores(_texts(body, "query"), documents)
        ranked = sorted(enumerate(scores), key=lambda pair: -pair[1])
        results = [
            {"index": n, "document": {"text": documents[n]}, "relevance_score": s}
            for n, s in ranked[: body.get("top_n") or None]
        ]
        tokens = sum(map(len, prompts))
        return {
            "id": f"rerank-{uuid.uuid4().hex}",
            "model": self._model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results,
        }

    def _scores(self, left: list[str], right: list[str]) -> tuple[list[float], list[list[int]]]:
        if len(left) == 1:
            left = left * len(right)
        if len(left) != len(right):
            raise Refused("Input lengths must be either 1:1, 1:N or N:N")
        pairs = [self._one(a) + self._one(b) for a, b in zip(left, right, strict=True)]
        return [_vector(ids)[0] for ids in pairs], pairs

    def _prompts(self, body: Body) -> list[list[int]]:
        given: Any = body.get("input")
        several = isinstance(given, list) and given and not isinstance(given[0], int)
        return [self._one(one) for one in (given if several else [given])]

    def _one(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            ids = self._reader.tokenize({"prompt": prompt})
        else:
            ids = self._reader.checked(prompt, "input")
        if len(ids) > self._limit:
            raise too_long(len(ids), self._limit)
        return ids

    def _answer(self, prefix: str, data: list[Body], prompts: list[list[int]]) -> Body:
        tokens = sum(map(len, prompts))
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": self._model,
            "data": data,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }


def _vector(ids: list[int]) -> list[float]:
    """A direction that depends on all ids."""
    seed = repr(ids).encode()
    return [zlib.crc32(seed, n) / 2**31 - 1.0 for n in range(DIMENSIONS)]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _texts(body: Body, *names: str) -> list[str]:
    given: Any = next((body[name] for name in names if name in body), None)
    texts = given if isinstance(given, list) else [given]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(f"1 validation error:\n  '{names[0]}' must be a text or texts.", names[0])
    return texts
