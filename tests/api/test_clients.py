"""Official clients, in front of a simulated engine."""

from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.api.contract import AnthropicContract, CurlContract, OpenAIContract, Service


class TestOpenAI(OpenAIContract):
    def test_embeddings_come_as_floats_and_packed(self, service: Service) -> None:
        with service.openai_client() as client, service.openai_client(service.engine) as direct:
            for given in ("one", ["one", "two"], [1, 2, 3], [[1, 2], [3]]):
                request: Any = {"model": service.model, "input": given}
                answer = client.embeddings.create(**request)
                own = direct.embeddings.create(**request)
                assert answer.data == own.data
                assert answer.usage == own.usage
                floats = client.embeddings.create(**request, encoding_format="float")
                assert floats.data[0].embedding == pytest.approx(answer.data[0].embedding)

    def test_a_recording_goes_through_as_a_form(self, service: Service) -> None:
        with service.openai_client() as client:
            answer = client.audio.transcriptions.create(
                model=service.model, file=("a.wav", b"RIFF" * 5000)
            )
            assert answer.text == "20000 bytes of sound"
            with pytest.raises(openai.NotFoundError):
                client.audio.transcriptions.create(model="whisper-99", file=("a.wav", b"RIFF"))


class TestAnthropic(AnthropicContract):
    pass


class TestCurl(CurlContract):
    pass


def test_what_the_engine_ranks_the_client_gets(service: Service) -> None:
    body = {"model": service.model, "query": "q", "documents": ["a", "b", "c"], "top_n": 2}
    pairs = {"model": service.model, "queries": "q", "documents": ["a", "b"]}
    for path, request in (("/v1/rerank", body), ("/v2/rerank", body), ("/v1/score", pairs)):
        through = httpx.post(service.url + path, json=request).json()
        direct = httpx.post(service.engine + path, json=request).json()
        for answer in (through, direct):
            answer.pop("id")
            answer.pop("created", None)
        assert through == direct
