"""What preprocessing costs inside vLLM itself: its request model and renderer, no engine.

Runs in vLLM's own environment, as a child of `python -m bench preprocess --vllm PYTHON`; imports
nothing of ours. One JSON task a line, one JSON answer a line. The steps are those of
`OnlineRenderer.preprocess_chat` (0.32) for a text model, on one thread.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any


def renderer(directory: str) -> Callable[[bytes], int]:
    """The path from a body's bytes to the engine's token ids; returns their count."""
    from vllm.entrypoints.openai.chat_completion.protocol import (  # type: ignore[import-not-found]
        ChatCompletionRequest,
    )
    from vllm.renderers import merge_kwargs  # type: ignore[import-not-found]
    from vllm.renderers.chat_utils import parse_chat_messages  # type: ignore[import-not-found]
    from vllm.renderers.hf import (  # type: ignore[import-not-found]
        resolve_chat_template_content_format,
        safe_apply_chat_template,
    )
    from vllm.tokenizers.registry import get_tokenizer  # type: ignore[import-not-found]

    tokenizer = get_tokenizer(directory, runner_type="generate")
    config = SimpleNamespace(
        multimodal_config=None, enable_prompt_embeds=False, tokenizer=directory, model=directory,
        revision=None, tokenizer_revision=None, code_revision=None, trust_remote_code=False,
        allowed_local_media_path="", hf_config=SimpleNamespace(model_type="qwen3"),
    )  # fmt: skip

    def prepare(body: bytes) -> int:
        request = ChatCompletionRequest.model_validate(json.loads(body))
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        params = request.build_chat_params(None, "auto").with_defaults(
            merge_kwargs(None, {"tools": tools, "tokenize": False})
        )
        content_format = resolve_chat_template_content_format(
            chat_template=None,
            tools=params.chat_template_kwargs.get("tools"),
            given_format="auto",
            tokenizer=tokenizer,
            model_config=config,
        )
        conversation, _, _ = parse_chat_messages(
            request.messages, config, content_format=content_format
        )
        prompt = safe_apply_chat_template(
            config, tokenizer, conversation, **params.get_apply_chat_template_kwargs()
        )
        return len(tokenizer(prompt, add_special_tokens=request.add_special_tokens)["input_ids"])

    return prepare


def cpu(prepare: Callable[[bytes], int], bodies: list[bytes], seconds: float) -> dict[str, Any]:
    """Median CPU time of one body in ms, over rounds for about `seconds`, and the counts."""
    tokens = [prepare(body) for body in bodies]
    rounds: list[float] = []
    until = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < until:
        started = time.process_time_ns()
        for body in bodies:
            prepare(body)
        rounds.append((time.process_time_ns() - started) / len(bodies) / 1e6)
    return {"cpu_ms": median(rounds), "tokens": tokens, "rounds": len(rounds)}


def main() -> None:
    prepare = renderer(sys.argv[1])
    for line in sys.stdin:
        task = json.loads(line)
        bodies = [body.encode() for body in task["bodies"]]
        print(json.dumps(cpu(prepare, bodies, task["seconds"])), flush=True)


if __name__ == "__main__":
    main()
