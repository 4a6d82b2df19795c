"""A client that leaves stops its generation in vLLM."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.real_vllm.metrics import Metrics, seconds_until
from tests.real_vllm.servers import Server

# More than half a minute's work for the engine, so that no answer ends by itself in a test.
_TOKENS = 7000
# An idle machine needs a tenth of a second. The rest is for one that has other work.
_STOPS_WITHIN = 3.0
_STARTS_WITHIN = 20.0


@contextmanager
def long_answer(gateway: Server, *, stream: bool) -> Iterator[http.client.HTTPConnection]:
    """A request for thousands of tokens, sent, its connection open until the block ends."""
    address = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Go on and on"}],
        "max_tokens": _TOKENS,
        "ignore_eos": True,
        "stream": stream,
    }
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    try:
        yield connection
    finally:
        connection.close()


def running(engine: Metrics) -> float:
    return engine.total("vllm:num_requests_running")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_generation_stops_when_the_client_leaves(
    gateway: Server, engine: Metrics, counters: Metrics, stream: bool
) -> None:
    generated = engine.total("vllm:generation_tokens_total")
    with long_answer(gateway, stream=stream) as connection:
        if stream:
            answer = connection.getresponse()
            assert [answer.readline()[:5] for _ in range(6)].count(b"data:") == 3
        seconds_until(lambda: running(engine) == 1, within=_STARTS_WITHIN)
    seconds_until(lambda: running(engine) == 0, within=_STOPS_WITHIN)
    generated = engine.total("vllm:generation_tokens_total") - generated
    assert generated < _TOKENS, "it ran to its end: leaving did not stop it"
    seconds_until(lambda: counters.total("forebay_in_flight_requests") == 0, within=_STOPS_WITHIN)


def test_one_client_leaving_does_not_disturb_another(gateway: Server, engine: Metrics) -> None:
    with long_answer(gateway, stream=True) as stays:
        answer = stays.getresponse()
        with long_answer(gateway, stream=True) as leaves:
            leaves.getresponse().readline()
            seconds_until(lambda: running(engine) == 2, within=_STARTS_WITHIN)
        seconds_until(lambda: running(engine) == 1, within=_STOPS_WITHIN)
        for _ in range(100):
            assert answer.readline().startswith((b"data: {", b"\n"))
    seconds_until(lambda: running(engine) == 0, within=_STOPS_WITHIN)
