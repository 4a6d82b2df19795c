"""What the gateway refuses, vLLM never sees; what vLLM refuses, the client sees as vLLM said it."""

import openai
import pytest

from tests.real_vllm.conftest import MAX_MODEL_LEN
from tests.real_vllm.metrics import Metrics

_TOO_LONG = "water " * (MAX_MODEL_LEN + 1)


def refused_by_vllm(engine: Metrics) -> float:
    """Requests that vLLM itself refused. (All requests would count the gateway's own probes.)"""
    return engine.total("http_requests_total", status="4xx")


@pytest.mark.parametrize("stream", [False, True])
def test_chat_over_the_context_length_never_reaches_vllm(
    shaped: openai.OpenAI, engine: Metrics, stream: bool
) -> None:
    before = refused_by_vllm(engine)
    with pytest.raises(openai.BadRequestError) as refusal:
        shaped.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": _TOO_LONG}], stream=stream
        )
    assert refusal.value.code == "context_length_exceeded"
    assert refusal.value.param == "messages"
    assert str(MAX_MODEL_LEN) in refusal.value.message
    assert refused_by_vllm(engine) == before


def test_completion_over_the_context_length_never_reaches_vllm(
    shaped: openai.OpenAI, engine: Metrics
) -> None:
    before = refused_by_vllm(engine)
    # A prompt that fills the context leaves no room for an answer.
    for prompt in (_TOO_LONG, [100] * MAX_MODEL_LEN):
        with pytest.raises(openai.BadRequestError) as refusal:
            shaped.completions.create(model="tiny", prompt=prompt)
        assert refusal.value.code == "context_length_exceeded"
    assert refused_by_vllm(engine) == before


def test_vllm_does_count_what_it_refuses(direct: openai.OpenAI, engine: Metrics) -> None:
    """Guards the tests above: the counter that they watch moves when vLLM refuses a prompt."""
    before = refused_by_vllm(engine)
    with pytest.raises(openai.BadRequestError):
        direct.completions.create(model="tiny", prompt=[100] * (MAX_MODEL_LEN + 1))
    assert refused_by_vllm(engine) == before + 1


def test_longest_prompt_that_fits_gets_the_one_token_that_is_left(
    direct: openai.OpenAI, shaped: openai.OpenAI
) -> None:
    """vLLM cuts `max_tokens` to what the context leaves; asking for more is no mistake."""
    for client in (direct, shaped):
        answer = client.completions.create(
            model="tiny", prompt=[100] * (MAX_MODEL_LEN - 1), max_tokens=50
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == MAX_MODEL_LEN - 1
        assert answer.usage.completion_tokens == 1


def test_unknown_model_is_not_found(shaped: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        shaped.chat.completions.create(model="nope", messages=[{"role": "user", "content": "Hi"}])
    assert refusal.value.code == "model_not_found"


def test_vllms_own_refusal_is_passed_on(direct: openai.OpenAI, shaped: openai.OpenAI) -> None:
    def refusal(client: openai.OpenAI) -> object:
        with pytest.raises(openai.BadRequestError) as error:
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "Hi"}], n=2, temperature=0
            )
        return error.value.body

    assert refusal(shaped) == refusal(direct)
