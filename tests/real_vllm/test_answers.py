"""What a client gets through the gateway is what vLLM answers."""

from typing import Any

import openai
import pytest

from tests.real_vllm.conversations import Request

_CHATS: dict[str, Request] = {
    "plain": {"messages": [{"role": "user", "content": "What is a forebay?"}]},
    "multi-turn": {
        "messages": [
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "Capital of France?"},
            {"role": "assistant", "content": "Paris"},
            {"role": "user", "content": "And of 日本?  123"},
        ]
    },
    "long": {"messages": [{"role": "user", "content": "water " * 1500}]},
    "stop": {"messages": [{"role": "user", "content": "Go"}], "stop": ["e"]},
    "sampled": {
        "messages": [{"role": "user", "content": "Draw"}],
        "temperature": 1.0,
        "seed": 7,
        "n": 2,
    },
    "logprobs": {
        "messages": [{"role": "user", "content": "Weigh"}],
        "logprobs": True,
        "top_logprobs": 2,
    },
    "schema": {
        "messages": [{"role": "user", "content": "JSON"}],
        "response_format": {"type": "json_object"},
    },
    "tool-call": {
        "messages": [{"role": "user", "content": "Call"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "stop",
                    "parameters": {
                        "type": "object",
                        "properties": {"now": {"type": "boolean"}},
                        "required": ["now"],
                        "additionalProperties": False,
                    },
                },
            }
        ],
        "tool_choice": "required",
        "max_tokens": 60,
    },
}


def said(choice: Any) -> Any:
    """What matters of an answer's choice: everything but the ids that vLLM draws at random."""
    message = choice.message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    logprobs = (
        [(at.token, len(at.top_logprobs)) for at in choice.logprobs.content]
        if choice.logprobs
        else None
    )
    return message.role, message.content, calls, choice.finish_reason, logprobs


@pytest.mark.parametrize("chat", [pytest.param(chat, id=name) for name, chat in _CHATS.items()])
def test_chat_answer_is_vllms(direct: openai.OpenAI, shaped: openai.OpenAI, chat: Request) -> None:
    request = {"model": "tiny", "temperature": 0, "max_tokens": 24} | chat
    own = direct.chat.completions.create(**request)
    answer = shaped.chat.completions.create(**request)
    assert [said(choice) for choice in answer.choices] == [said(choice) for choice in own.choices]
    assert answer.usage == own.usage
    assert answer.model == "tiny"


def test_another_prompt_gives_another_answer(shaped: openai.OpenAI) -> None:
    """Guards the comparisons above: this model's answers do depend on the prompt."""
    answers = {
        shaped.chat.completions.create(
            model="tiny",
            temperature=0,
            max_tokens=8,
            messages=[{"role": "user", "content": content}],
        )
        .choices[0]
        .message.content
        for content in ("one", "two", "three", "four")
    }
    assert len(answers) == 4


def test_stream_carries_the_same_text_and_the_usage(
    direct: openai.OpenAI, shaped: openai.OpenAI
) -> None:
    request: Request = {
        "model": "tiny",
        "temperature": 0,
        "max_tokens": 40,
        "messages": [{"role": "user", "content": "Tell me of water"}],
    }
    whole = direct.chat.completions.create(**request)
    chunks = list(
        shaped.chat.completions.create(
            **request, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert len(deltas) > 30, "the stream came in few pieces: it was held back"
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("Once   upon 12 times", id="text"),
        pytest.param([1, 4093, 198, 19556, 216, 33], id="ids"),
        pytest.param(["one", "another prompt"], id="several-texts"),
        pytest.param([[1, 4093], [198, 19556, 216]], id="several-ids"),
    ],
)
def test_completion_is_vllms(direct: openai.OpenAI, shaped: openai.OpenAI, prompt: Any) -> None:
    request: Request = {
        "model": "tiny",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 12,
        "extra_body": {"return_token_ids": True},
    }
    own = direct.completions.create(**request)
    answer = shaped.completions.create(**request)
    assert [(c.text, c.finish_reason, c.model_extra) for c in answer.choices] == [
        (c.text, c.finish_reason, c.model_extra) for c in own.choices
    ]
    assert answer.usage == own.usage


def test_completion_travels_as_ids(shaped: openai.OpenAI) -> None:
    answer = shaped.completions.with_raw_response.create(
        model="tiny", prompt="Once   upon 12 times", max_tokens=1
    )
    assert answer.headers["x-forebay-channel"] == "ids"


def test_models_are_vllms(direct: openai.OpenAI, shaped: openai.OpenAI) -> None:
    assert [model.id for model in shaped.models.list()] == [
        model.id for model in direct.models.list()
    ]
