"""The ids that vLLM computed from are the ones it would have made itself, and they came from us."""

from typing import Any

import openai
import pytest

from tests.real_vllm.conversations import Request, fifty
from tests.real_vllm.metrics import Metrics


def ask(client: openai.OpenAI, request: Request, **more: Any) -> tuple[list[int], int, str | None]:
    """The prompt ids that vLLM used, its count of them, and the channel that the gateway names.

    `more` are fields that the client library does not know.
    """
    answer = client.chat.completions.with_raw_response.create(
        **{"model": "tiny", "max_tokens": 1, "temperature": 0} | request,
        extra_body={"return_token_ids": True} | more,
    )
    body = answer.parse()
    assert body.usage is not None
    assert body.model_extra is not None
    ids = body.model_extra["prompt_token_ids"]
    return ids, body.usage.prompt_tokens, answer.headers.get("x-forebay-channel")


@pytest.mark.parametrize(
    "conversation", [pytest.param(request, id=name) for name, request in fifty()]
)
def test_conversation_reaches_vllm_as_the_ids_it_would_make(
    direct: openai.OpenAI, shaped: openai.OpenAI, conversation: Request
) -> None:
    own, own_count, _ = ask(direct, conversation)
    ids, count, channel = ask(shaped, conversation)
    assert ids == own
    assert count == own_count == len(own)
    assert channel == "ids"


def test_ids_channel_is_counted(shaped: openai.OpenAI, counters: Metrics) -> None:
    def sent(channel: str) -> float:
        return counters.total("forebay_requests_total", channel=channel)

    ids, text = sent("ids"), sent("text")
    for _ in range(3):
        ask(shaped, {"messages": [{"role": "user", "content": "Count me"}]})
    assert (sent("ids") - ids, sent("text") - text) == (3, 0)


def test_template_arguments_and_prompt_ending_are_vllms(
    direct: openai.OpenAI, shaped: openai.OpenAI
) -> None:
    """A body that asks for another ending of the prompt is rendered as vLLM renders it."""
    unfinished = {
        "messages": [
            {"role": "user", "content": "Count"},
            {"role": "assistant", "content": "One, two"},
        ]
    }
    ending = {"add_generation_prompt": False, "continue_final_message": True}
    own, _, _ = ask(direct, unfinished, **ending)
    ids, _, _ = ask(shaped, unfinished, **ending)
    assert ids == own


def test_client_cannot_choose_the_ids(direct: openai.OpenAI, shaped: openai.OpenAI) -> None:
    """vLLM takes any ids in `kv_transfer_params`; through the gateway only the gateway's."""
    hello = {"messages": [{"role": "user", "content": "Hello"}]}
    own, _, _ = ask(direct, hello)
    forged = {"kv_transfer_params": {"prompt_token_ids": [100, 101, 102]}}
    taken, _, _ = ask(direct, hello, **forged)
    assert taken == [100, 101, 102], "vLLM ignores the ids: this test proves nothing"
    ids, _, _ = ask(shaped, hello, **forged)
    assert ids == own
