"""Official clients in front of a real vLLM: all that they can do before a simulated engine, and
what only a model can: tool calls, structured answers, logprobs."""

import json
from typing import Any

import anthropic
import pytest

from tests.api.contract import AnthropicContract, CurlContract, OpenAIContract, Service
from tests.real_vllm.servers import Server

USER = {"role": "user", "content": "Call"}
PARAMETERS = {
    "type": "object",
    "properties": {"now": {"type": "boolean"}},
    "required": ["now"],
    "additionalProperties": False,
}


@pytest.fixture(scope="session")
def service(gateway: Server, vllm: Server) -> Service:
    return Service(gateway.url, vllm.url, "tiny")


def both(service: Service, ask: Any) -> list[Any]:
    return [ask(url) for url in (service.url, service.engine)]


def until_called(ask: Any) -> tuple[Any, str]:
    """The first call that comes whole, and its prompt: a random model ends few that it begins."""
    for number in range(40):
        prompt = f"Call {number}"
        if (call := ask(prompt)) is not None:
            return call, prompt
    raise AssertionError("the model called nothing")


class TestOpenAI(OpenAIContract):
    def test_tools_are_called_whole_and_streamed(self, service: Service) -> None:
        tool = {"type": "function", "function": {"name": "stop", "parameters": PARAMETERS}}
        request: Any = {
            "model": service.model,
            "tools": [tool],
            "tool_choice": "required",
            "max_tokens": 100,
            "temperature": 0,
        }
        with service.openai_client() as client:

            def ask(prompt: str) -> Any:
                said: Any = [{"role": "user", "content": prompt}]
                whole = client.chat.completions.create(**request, messages=said)
                return (whole.choices[0].message.tool_calls or [None])[0]

            call, prompt = until_called(ask)
        assert call.function.name == "stop"

        def streamed(url: str) -> str:
            said: Any = [{"role": "user", "content": prompt}]
            with service.openai_client(url) as client:
                stream = client.chat.completions.create(**request, messages=said, stream=True)
                deltas = [c.choices[0].delta.tool_calls for c in stream if c.choices]
            return "".join(d[0].function.arguments or "" for d in deltas if d and d[0].function)

        through, direct = both(service, streamed)
        assert through == direct != ""

    def test_a_structured_answer_fits_its_schema(self, service: Service) -> None:
        schema = {"name": "word", "schema": {"type": "string", "enum": ["yes", "no"]}}
        with service.openai_client() as client:
            answer = client.chat.completions.create(
                model=service.model,
                messages=[USER],  # type: ignore[list-item]
                response_format={"type": "json_schema", "json_schema": schema},  # type: ignore[arg-type]
                max_tokens=20,
                temperature=0,
            )
        assert json.loads(answer.choices[0].message.content or "") in ("yes", "no")

    def test_logprobs_are_the_engines(self, service: Service) -> None:
        def ask(url: str) -> Any:
            with service.openai_client(url) as client:
                return client.chat.completions.create(
                    model=service.model,
                    messages=[USER],  # type: ignore[list-item]
                    logprobs=True,
                    top_logprobs=2,
                    max_tokens=4,
                    temperature=0,
                )

        through, direct = both(service, ask)
        assert through.choices == direct.choices

    def test_a_response_calls_a_function(self, service: Service) -> None:
        tool: Any = {"type": "function", "name": "stop", "parameters": PARAMETERS}
        with service.openai_client() as client:

            def ask(prompt: str) -> Any:
                answer = client.responses.create(
                    model=service.model,
                    input=prompt,
                    tools=[tool],
                    tool_choice="required",
                    max_output_tokens=100,
                    temperature=0,
                )
                calls = (item for item in answer.output if item.type == "function_call")
                return next(calls, None)

            call, _ = until_called(ask)
        assert call.name == "stop"

    def test_a_background_response_is_fetched_and_stopped(self, service: Service) -> None:
        with service.openai_client() as client:
            begun = client.responses.create(
                model=service.model,
                input="Go on and on.",
                background=True,
                max_output_tokens=4000,
                extra_body={"ignore_eos": True},
            )
            assert client.responses.retrieve(begun.id).id == begun.id
            assert client.responses.cancel(begun.id).status == "cancelled"


class TestAnthropic(AnthropicContract):
    def test_what_comes_of_a_tool_is_the_engines(self, service: Service) -> None:
        """A random model rarely makes an object of its arguments: vLLM refuses the rest itself."""
        tool: Any = {"name": "stop", "input_schema": PARAMETERS}

        def outcomes(url: str) -> list[Any]:
            found: list[Any] = []
            with service.anthropic_client(url) as client:
                for number in range(6):
                    try:
                        answer = client.messages.create(
                            model=service.model,
                            max_tokens=100,
                            messages=[{"role": "user", "content": f"Call {number}"}],
                            tools=[tool],
                            tool_choice={"type": "any"},
                            extra_body={"temperature": 0},
                        )
                    except anthropic.APIStatusError as error:
                        found.append((error.status_code, error.body))
                    else:
                        kinds = [(b.type, getattr(b, "input", None)) for b in answer.content]
                        found.append((answer.stop_reason, kinds, answer.usage))
            return found

        through, direct = both(service, outcomes)
        assert through == direct


class TestCurl(CurlContract):
    pass
