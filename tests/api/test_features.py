"""What the API surface does beside passing on: pins, adapters, aliases, media, waiting streams."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from gateway.api import held
from tests.api.conftest import MODEL, StartEngine, StartGateway
from tests.api.contract import Service

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}


def metric(url: str, name: str, **labels: str) -> float:
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    total = 0.0
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        head, _, value = line.rpartition(" ")
        found, _, rest = head.partition("{")
        if found == name and wanted <= set(rest.rstrip("}").split(",")):
            total += float(value)
    return total


@pytest.fixture(scope="module")
def engines(start_engine: StartEngine) -> list[str]:
    return [start_engine(), start_engine("--lora-modules", "poet", "--max-model-len", "8192")]


@pytest.fixture(scope="module")
def two_engines(start_gateway: StartGateway, engines: list[str]) -> str:
    aliases = {"gpt-4o": MODEL, "bard": "poet"}
    # One at a time each, so that eight at once need both.
    backends = {f"engine-{n}": {"url": url, "limit": 1} for n, url in enumerate(engines)}
    settings = {"aliases": aliases, "workers": 2, "expose_timings": True}
    return start_gateway(backends=backends, **settings).url


@pytest.fixture(scope="module")
def pictures(start_engine: StartEngine, start_gateway: StartGateway) -> str:
    media = {"max_body": 200_000, "max_parts": 4}
    engine = start_engine("--media-tokens", "300")
    return start_gateway(engine, media=media, expose_timings=True).url


@pytest.fixture(scope="module")
def narrow(start_engine: StartEngine, start_gateway: StartGateway) -> str:
    backend = {"engine-0": {"url": start_engine("--step-ms", "20"), "limit": 1}}
    return start_gateway(backends=backend, timeouts={"queue_wait": 2.5}).url


@pytest.mark.slow
class TestTwoEngines:
    """Two engines behind one gateway of two relay processes; one has an adapter."""

    @pytest.fixture
    def url(self, two_engines: str) -> str:
        return two_engines

    @pytest.fixture
    def client(self, url: str) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            yield client

    def test_a_stored_response_is_found_by_whatever_process_is_asked(
        self, engines: list[str], url: str
    ) -> None:
        """Each request opens a connection of its own, so both relay processes are asked."""

        def converse(_number: int) -> str:
            body = {"model": MODEL, "input": "Remember 12.", "max_output_tokens": 60}
            first = httpx.post(f"{url}/v1/responses", json=body, timeout=60).json()
            holder = next(e for e in engines if first["id"].startswith(f"resp_{held.tag(e)}"))
            body |= {"previous_response_id": first["id"], "max_output_tokens": 1}
            second = httpx.post(f"{url}/v1/responses", json=body, timeout=60)
            assert second.status_code == 200
            backend = second.headers["x-forebay-backend"]
            assert backend == f"engine-{engines.index(holder)}"
            kept = httpx.get(f"{url}/v1/responses/{first['id']}", timeout=60)
            assert kept.json()["id"] == first["id"]
            return holder

        with ThreadPoolExecutor(8) as threads:
            holders = set(threads.map(converse, range(16)))
        assert holders == set(engines), "one engine got them all: this showed nothing"

    def test_an_adapter_is_a_model_of_the_engine_that_has_it(
        self, client: openai.OpenAI, url: str
    ) -> None:
        cards = {model.id: model.model_dump() for model in client.models.list()}
        assert cards["poet"]["parent"] == MODEL
        assert cards["poet"]["max_model_len"] == 8192
        assert cards[MODEL]["max_model_len"] == 32_768
        for _ in range(6):
            raw = client.chat.completions.with_raw_response.create(
                model="poet", messages=[USER], max_tokens=1
            )
            assert raw.headers["x-forebay-backend"] == "engine-1"
        words = "water " * 9000
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(
                model="poet", messages=[{"role": "user", "content": words}]
            )
        assert long.value.code == "context_length_exceeded"

    def test_an_alias_is_the_model_it_names(self, client: openai.OpenAI) -> None:
        assert {"gpt-4o", "bard", "poet", MODEL} == {model.id for model in client.models.list()}
        assert client.models.retrieve("gpt-4o").id == "gpt-4o"
        answer = client.chat.completions.create(model="gpt-4o", messages=[USER], max_tokens=1)
        assert answer.model == MODEL
        assert client.embeddings.create(model="gpt-4o", input="Hi").model == MODEL
        heard = client.audio.transcriptions.create(model="gpt-4o", file=("a.wav", b"RIFF"))
        assert heard.text == "4 bytes of sound"
        raw = client.completions.with_raw_response.create(model="bard", prompt="Hi", max_tokens=1)
        assert raw.headers["x-forebay-backend"] == "engine-1"


class TestMedia:
    """A model that takes pictures, each of which costs 300 tokens."""

    @pytest.fixture
    def url(self, pictures: str) -> str:
        return pictures

    def ask(self, url: str, pictures: int, size: int = 100) -> httpx.Response:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
        content = [{"type": "text", "text": "What is on it?"}, *[picture] * pictures]
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 1}
        return httpx.post(url + CHAT, json=body)

    def test_a_picture_is_classed_by_what_pictures_were_found_to_cost(self, url: str) -> None:
        first = self.ask(url, 2)
        assert first.status_code == 200
        assert first.headers["x-forebay-class"] == "long"  # two of 800 tokens, by the first guess
        true = first.json()["usage"]["prompt_tokens"]
        for _ in range(30):
            last = self.ask(url, 2)
        assert last.headers["x-forebay-class"] == "short"
        assert int(last.headers["x-forebay-prompt-tokens"]) == pytest.approx(true, rel=0.1)
        assert metric(url, "forebay_prompts_counted_total", endpoint=CHAT, count="estimated") >= 31

    def test_media_have_limits_of_their_own(self, url: str) -> None:
        for answer, code in (
            (self.ask(url, 5), "too_many_media"),
            (self.ask(url, 1, 300_000), "media_too_large"),
        ):
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == code
        text = {"model": MODEL, "messages": [USER], "user": "x" * 300_000, "max_tokens": 1}
        assert httpx.post(url + CHAT, json=text).status_code == 200

    def test_large_pictures_are_read_in_a_lane_of_their_own(self, url: str) -> None:
        assert self.ask(url, 1, 100_000).status_code == 200
        lanes = {
            lane["name"]: lane for lane in httpx.get(f"{url}/ready").json()["tokenizers"]["lanes"]
        }
        assert lanes["media"]["done"] >= 1


@pytest.mark.slow
class TestWaiting:
    """An engine that takes one request at a time, and is given a long one first."""

    @pytest.fixture
    def url(self, narrow: str) -> str:
        return narrow

    def waiting(self, url: str, *asked: tuple[str, dict[str, Any]], tokens: int) -> list[str]:
        """The answers to requests that wait behind one of so many tokens."""
        first = {"model": MODEL, "messages": [USER], "max_tokens": tokens, "ignore_eos": True}
        began = threading.Event()

        def occupy() -> None:
            with httpx.stream("POST", url + CHAT, json=first | {"stream": True}) as stream:
                for _ in stream.iter_raw():
                    began.set()

        thread = threading.Thread(target=occupy)
        thread.start()
        assert began.wait(20)
        headers = {"x-forebay-keep-alive": "0.2"}

        def wait(asked: tuple[str, dict[str, Any]]) -> str:
            path, body = asked
            with httpx.stream("POST", url + path, json=body, headers=headers, timeout=60) as stream:
                assert stream.status_code == 200
                assert stream.headers["content-type"].startswith("text/event-stream")
                assert stream.headers["x-request-id"]
                return "".join(stream.iter_text())

        with ThreadPoolExecutor(len(asked)) as threads:
            texts = list(threads.map(wait, asked))
        thread.join()
        return texts

    def test_a_stream_that_waits_is_kept_open_by_comments(self, url: str) -> None:
        body = {"model": MODEL, "messages": [USER], "max_tokens": 2, "stream": True}
        (text,) = self.waiting(url, (CHAT, body), tokens=60)
        comments, _, events = text.partition("data: ")
        assert 2 <= comments.count(": waiting for an engine\n\n") <= 12
        assert events.endswith("data: [DONE]\n\n")

    def test_clients_do_not_notice_the_comments(self, url: str) -> None:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            stream = client.chat.completions.create(
                model=MODEL,
                messages=[USER],  # type: ignore[list-item]
                max_tokens=2,
                stream=True,
                extra_headers={"x-forebay-keep-alive": "0.2"},
            )
            assert len(list(stream)) == 3

    def test_what_the_engine_refuses_then_is_an_event(self, url: str) -> None:
        body = {"model": MODEL, "messages": [USER], "max_tokens": -1, "stream": True}
        (text,) = self.waiting(url, (CHAT, body), tokens=60)
        event = json.loads(text.rpartition("data: ")[2])
        assert event["error"]["param"] == "max_tokens"

    def test_what_the_gateway_refuses_then_is_an_event_of_the_clients_kind(self, url: str) -> None:
        body = {"model": MODEL, "messages": [USER], "max_tokens": 2, "stream": True}
        asked = ((CHAT, body), ("/v1/messages", body))
        chat, text = self.waiting(url, *asked, tokens=250)
        assert json.loads(chat.rpartition("data: ")[2])["error"]["code"] == "expired"
        last = text.rstrip("\n").rpartition("\n\n")[2]
        name, data = last.split("\n")
        assert name == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["type"] == "overloaded_error"


def test_an_engine_that_only_embeds_is_found_ready(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    url = start_gateway(start_engine("--runner", "pooling")).url
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": MODEL, "input": ["a", "b"]})
    assert len(answer.json()["data"]) == 2
    refused = httpx.post(url + CHAT, json={"model": MODEL, "messages": [USER]})
    assert (refused.status_code, refused.json()) == (404, {"detail": "Not Found"})


def test_counts_are_exact_where_they_can_be_and_a_metric_says_so(service: Service) -> None:
    def counted(endpoint: str, count: str) -> float:
        return metric(service.url, "forebay_prompts_counted_total", endpoint=endpoint, count=count)

    asked = (
        ("/v1/responses", "exact", {"input": "Hi", "max_output_tokens": 1}),
        ("/v1/messages", "exact", {"messages": [USER], "max_tokens": 1}),
        ("/v1/embeddings", "exact", {"input": "Hi"}),
        ("/v1/rerank", "estimated", {"query": "a", "documents": ["b"]}),
        ("/v1/responses", "estimated", {"input": [{"type": "item_reference", "id": "x"}]}),
    )
    for endpoint, count, body in asked:
        before = counted(endpoint, count)
        httpx.post(service.url + endpoint, json={"model": service.model} | body)
        assert counted(endpoint, count) == before + 1


def test_a_stream_is_the_engines_byte_for_byte(service: Service) -> None:
    """But for the ids and times that every answer draws for itself, and their order."""
    body = {
        "model": service.model,
        "messages": [USER],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "n": 2,
    }
    texts = []
    for url in (service.engine, service.url):
        lines = httpx.post(url + CHAT, json=body).text.split("\n\n")
        documents = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        names = {f'"id":"{d["id"]}"' for d in documents}
        assert len(names) == 1
        (name,) = names
        created = f'"created":{documents[0]["created"]}'
        texts.append(sorted(line.replace(name, "").replace(created, "") for line in lines))
    assert texts[0] == texts[1]


@pytest.fixture(scope="module")
def full(start_engine: StartEngine, start_gateway: StartGateway) -> str:
    """One request at a time, and none may wait."""
    classes = {"short": {"max_prompt_tokens": 1024, "queue_limit": 0}, "long": {"queue_limit": 0}}
    backends = {"engine-0": {"url": start_engine("--step-ms", "20"), "limit": 1}}
    return start_gateway(backends=backends, classes=classes).url


def test_hints_for_a_retry_are_what_the_official_clients_obey(full: str) -> None:
    url = full
    endless = {"model": MODEL, "messages": [USER], "max_tokens": 600, "stream": True}
    with httpx.stream("POST", url + CHAT, json=endless | {"ignore_eos": True}) as stream:
        pieces = stream.iter_raw()
        next(pieces)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            with pytest.raises(openai.RateLimitError) as refused:
                client.chat.completions.create(model=MODEL, messages=[USER])  # type: ignore[list-item]
            assert refused.value.code == "queue_full"
            assert float(refused.value.response.headers["retry-after-ms"]) > 0
        with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as other:
            with pytest.raises(anthropic.RateLimitError) as limited:
                other.messages.create(model=MODEL, max_tokens=1, messages=[USER])  # type: ignore[list-item]
            assert limited.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
            assert int(limited.value.response.headers["retry-after"]) >= 1


def test_a_client_that_retries_gets_its_answer_when_there_is_room(full: str) -> None:
    url = full
    body = {"model": MODEL, "messages": [USER], "max_tokens": 40, "ignore_eos": True}
    with (
        httpx.stream("POST", url + CHAT, json=body | {"stream": True}) as stream,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=8) as client,
    ):
        pieces = stream.iter_raw()
        next(pieces)
        reader = threading.Thread(target=lambda: list(pieces))
        reader.start()
        answer = client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=1)  # type: ignore[list-item]
        reader.join()
    assert answer.choices[0].message.content
