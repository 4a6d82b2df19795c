"""What official clients must be able to do through the gateway, whatever engine is behind it.

The classes are inherited where there is a `service` fixture: in front of a simulated engine
(`test_clients`), and of a real vLLM (`tests/real_vllm/test_api_clients`).
"""

import subprocess
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a forebay?"},
]


@dataclass(frozen=True)
class Service:
    """A gateway, the engine behind it, and the model that it serves."""

    url: str
    engine: str
    model: str

    def openai_client(self, url: str | None = None, **options: Any) -> openai.OpenAI:
        own = {"base_url": f"{url or self.url}/v1", "api_key": "any", "max_retries": 0}
        return openai.OpenAI(**(own | options))

    def async_openai_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0)

    def anthropic_client(self, url: str | None = None, **options: Any) -> anthropic.Anthropic:
        own = {"base_url": url or self.url, "api_key": "any", "max_retries": 0}
        return anthropic.Anthropic(**(own | options))


class OpenAIContract:
    """openai-python."""

    def test_a_chat_is_the_engines(self, service: Service) -> None:
        def ask(url: str) -> Any:
            with service.openai_client(url) as client:
                return client.chat.completions.create(
                    model=service.model, messages=MESSAGES, max_tokens=8, temperature=0
                )

        through, direct = ask(service.url), ask(service.engine)
        assert through.choices == direct.choices
        assert through.usage == direct.usage

    def test_a_stream_comes_in_pieces_that_make_up_the_whole(self, service: Service) -> None:
        with service.openai_client() as client:
            request: Any = {
                "model": service.model,
                "messages": MESSAGES,
                "max_tokens": 8,
                "temperature": 0,
            }
            whole = client.chat.completions.create(**request)
            options: Any = {"include_usage": True}
            stream = client.chat.completions.create(**request, stream=True, stream_options=options)
            chunks = list(stream)
        said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert said == whole.choices[0].message.content
        assert chunks[-1].usage == whole.usage
        assert len(chunks) > 4

    async def test_the_async_client_and_its_streams(self, service: Service) -> None:
        async with service.async_openai_client() as client:
            stream = await client.chat.completions.create(
                model=service.model, messages=MESSAGES, max_tokens=4, stream=True
            )
            chunks = [chunk async for chunk in stream]
            completion = await client.completions.create(
                model=service.model, prompt=["one", "two"], max_tokens=2
            )
        assert chunks[-1].choices[0].finish_reason in ("length", "stop")
        assert [choice.index for choice in completion.choices] == [0, 1]

    def test_several_choices_with_logprobs(self, service: Service) -> None:
        with service.openai_client() as client:
            answer = client.chat.completions.create(
                model=service.model, messages=MESSAGES, max_tokens=3, n=2, temperature=1, seed=1
            )
        assert [choice.index for choice in answer.choices] == [0, 1]

    def test_a_response_and_its_events(self, service: Service) -> None:
        with service.openai_client() as client:
            request: Any = {
                "model": service.model,
                "input": "What is a forebay?",
                "instructions": "Be brief.",
                "max_output_tokens": 6,
                "temperature": 0,
            }
            whole = client.responses.create(**request)
            events = list(client.responses.create(**request, stream=True))
        assert whole.output_text
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert said == whole.output_text

    def test_a_conversation_goes_on_from_a_stored_response(self, service: Service) -> None:
        with service.openai_client() as client:
            first = client.responses.create(
                model=service.model, input="Remember 12.", max_output_tokens=3
            )
            second = client.responses.create(
                model=service.model,
                input="Which number?",
                previous_response_id=first.id,
                max_output_tokens=3,
            )
            kept = client.responses.retrieve(first.id)
            assert first.usage is not None
            assert second.usage is not None
            assert second.usage.input_tokens > first.usage.input_tokens
            assert kept.id == first.id
            with pytest.raises(openai.NotFoundError, match="resp_unknown"):
                client.responses.create(
                    model=service.model, input="Hi", previous_response_id="resp_unknown"
                )
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve("resp_unknown")
            with pytest.raises(openai.BadRequestError, match="synchronous"):
                client.responses.cancel(first.id)

    def test_models_are_listed_and_told_one_by_one(self, service: Service) -> None:
        with service.openai_client() as client:
            listed = {model.id: model for model in client.models.list()}
            one = client.models.retrieve(service.model)
            assert one == listed[service.model]
            assert one.model_dump()["max_model_len"] > 0
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("org/unknown")

    def test_errors_are_the_classes_that_clients_catch(self, service: Service) -> None:
        with service.openai_client() as client:
            with pytest.raises(openai.NotFoundError) as unknown:
                client.chat.completions.create(model="gpt-99", messages=MESSAGES)
            assert unknown.value.code == "model_not_found"
            assert unknown.value.param == "model"
            with pytest.raises(openai.BadRequestError) as wrong:
                client.chat.completions.create(
                    model=service.model, messages=MESSAGES, max_tokens=-1
                )
            assert wrong.value.body
            assert wrong.value.request_id
            with pytest.raises(openai.BadRequestError) as long:
                client.responses.create(model=service.model, input="water " * 40_000)
            assert long.value.code == "context_length_exceeded"

    def test_a_stream_that_cannot_begin_is_an_error_and_not_a_stream(
        self, service: Service
    ) -> None:
        with service.openai_client() as client, pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model=service.model, messages=MESSAGES, max_tokens=-1, stream=True
            )


class AnthropicContract:
    """anthropic-python."""

    def test_a_message_is_the_engines(self, service: Service) -> None:
        def ask(url: str) -> Any:
            with service.anthropic_client(url) as client:
                return client.messages.create(
                    model=service.model,
                    max_tokens=6,
                    extra_body={"temperature": 0},
                    system="Be brief.",
                    messages=[{"role": "user", "content": "What is a forebay?"}],
                )

        through, direct = ask(service.url), ask(service.engine)
        assert through.content == direct.content
        assert through.usage == direct.usage
        assert through.stop_reason == direct.stop_reason == "max_tokens"

    def test_a_stream_makes_up_the_message(self, service: Service) -> None:
        request: Any = {
            "model": service.model,
            "max_tokens": 6,
            "extra_body": {"temperature": 0},
            "messages": [{"role": "user", "content": "What is a forebay?"}],
        }
        with service.anthropic_client() as client:
            whole = client.messages.create(**request)
            with client.messages.stream(**request) as stream:
                said = "".join(stream.text_stream)
                final = stream.get_final_message()
        (block,) = whole.content
        assert block.type == "text"
        assert said == block.text
        assert final.usage.output_tokens == whole.usage.output_tokens == 6

    def test_tokens_are_counted_without_an_engine(self, service: Service) -> None:
        request: Any = {
            "model": service.model,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What is a forebay?"}]}
            ],
            "tools": [{"name": "f", "description": "does", "input_schema": {"type": "object"}}],
        }
        with (
            service.anthropic_client() as client,
            service.anthropic_client(service.engine) as direct,
        ):
            counted = client.messages.count_tokens(**request)
            assert counted == direct.messages.count_tokens(**request)
            raw = client.messages.with_raw_response.count_tokens(**request)
            assert "x-forebay-backend" not in raw.headers

    def test_errors_have_anthropics_shape(self, service: Service) -> None:
        request: Any = {"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}
        with service.anthropic_client() as client:
            with pytest.raises(anthropic.NotFoundError) as unknown:
                client.messages.create(model="claude-99", **request)
            body: Any = unknown.value.body
            assert body["type"] == "error"
            assert body["error"]["type"] == "not_found_error"
            with pytest.raises(anthropic.BadRequestError) as long:
                client.messages.create(
                    model=service.model,
                    max_tokens=3,
                    messages=[{"role": "user", "content": "water " * 40_000}],
                )
            assert "context length" in str(long.value)
            with pytest.raises(anthropic.BadRequestError):
                client.messages.create(model=service.model, **(request | {"max_tokens": 0}))


class CurlContract:
    """`curl -N`."""

    def test_a_stream_is_printed_event_by_event(self, service: Service) -> None:
        body = (
            f'{{"model":"{service.model}","stream":true,"max_tokens":5,'
            '"messages":[{"role":"user","content":"Hi"}]}'
        )
        command = ["curl", "-sN", f"{service.url}/v1/chat/completions", "-d", body]
        command += ["-H", "content-type: application/json"]
        printed = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        events = printed.split(b"\n\n")
        assert all(event.startswith(b"data: {") for event in events[:-2])
        assert events[-2:] == [b"data: [DONE]", b""]

    def test_a_request_of_another_type_gets_the_engines_own_refusal(self, service: Service) -> None:
        def ask(url: str) -> tuple[int, bytes]:
            body = f'{{"model":"{service.model}","messages":[]}}'
            answer = httpx.post(f"{url}/v1/chat/completions", content=body.encode())
            return answer.status_code, answer.content

        through, direct = ask(service.url), ask(service.engine)
        assert through == direct
        assert through[0] == 400
