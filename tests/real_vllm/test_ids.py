"""The ids that vLLM computed from are the ones it would have made itself, and they came from us."""

import openai
import pytest

from tests.real_vllm.conversations import AS_TEXT, Request, fifty
from tests.real_vllm.metrics import Metrics


def ask(client: openai.OpenAI, request: Request) -> tuple[list[int], int, str | None]:
    """The prompt ids that vLLM used, its count of them, and the channel that the gateway names."""
    more = {"return_token_ids": True} | request.get("extra_body", {})
    request = {"model": "tiny", "max_tokens": 1, "temperature": 0} | request
    answer = client.chat.completions.with_raw_response.create(**request | {"extra_body": more})
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


@pytest.mark.parametrize(
    "conversation", [pytest.param(request, id=name) for name, request in AS_TEXT.items()]
)
def test_what_ids_would_change_goes_as_text(
    direct: openai.OpenAI, shaped: openai.OpenAI, conversation: Request
) -> None:
    own, _, _ = ask(direct, conversation)
    ids, _, channel = ask(shaped, conversation)
    assert ids == own
    assert channel == "text"


def test_client_cannot_choose_the_ids(direct: openai.OpenAI, shaped: openai.OpenAI) -> None:
    """vLLM takes any ids in `kv_transfer_params`; through the gateway only the gateway's."""
    hello: Request = {"messages": [{"role": "user", "content": "Hello"}]}
    own, _, _ = ask(direct, hello)
    forged = hello | {"extra_body": {"kv_transfer_params": {"prompt_token_ids": [100, 101, 102]}}}
    taken, _, _ = ask(direct, forged)
    assert taken == [100, 101, 102], "vLLM ignores the ids: this test proves nothing"
    ids, _, _ = ask(shaped, forged)
    assert ids == own
