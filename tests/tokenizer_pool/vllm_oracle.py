"""Runs inside vLLM's environment: token ids by vLLM's own request models and renderer, no engine.

`python vllm_oracle.py DIR` reads one chat request (JSON) a line and answers each with a line:
`{"ids": [...]}` or `{"error": "..."}`. The steps are those of `OnlineRenderer.preprocess_chat` in
0.32 for a text model without a multimodal configuration.
"""

import json
import sys
from types import SimpleNamespace

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import merge_kwargs
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template
from vllm.tokenizers.registry import get_tokenizer


def render(config: SimpleNamespace, tokenizer: object, line: str) -> list[int]:
    request = ChatCompletionRequest.model_validate(json.loads(line))
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(None, "auto").with_defaults(
        merge_kwargs(None, {"tools": tools, "tokenize": False})
    )
    conversation, _, _ = parse_chat_messages(
        request.messages,
        config,
        content_format=resolve_chat_template_content_format(
            chat_template=None,
            tools=params.chat_template_kwargs.get("tools"),
            given_format="auto",
            tokenizer=tokenizer,
            model_config=config,
        ),
    )
    prompt = safe_apply_chat_template(
        config, tokenizer, conversation, **params.get_apply_chat_template_kwargs()
    )
    return tokenizer(prompt, add_special_tokens=request.add_special_tokens)["input_ids"]


def main() -> None:
    directory = sys.argv[1]
    tokenizer = get_tokenizer(directory, runner_type="generate")
    config = SimpleNamespace(
        multimodal_config=None,
        enable_prompt_embeds=False,
        tokenizer=directory,
        model=directory,
        revision=None,
        tokenizer_revision=None,
        code_revision=None,
        trust_remote_code=False,
        allowed_local_media_path="",
        hf_config=SimpleNamespace(model_type="llama"),
    )
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = {"ids": render(config, tokenizer, line)}
        except Exception as error:  # noqa: BLE001 - any refusal of vLLM is an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
