"""A client that leaves stops its generation in vLLM."""

import asyncio
import http.client
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from bench.chaos.leaving import PHASES, TOGETHER, Place, leave
from bench.demo import free_port
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


@pytest.fixture(scope="module")
def narrow(vllm: Server, logs: Path) -> Iterator[Server]:
    """A gateway of so few slots that a few clients fill them, and others wait."""
    port = free_port()
    config = logs / "narrow.yaml"
    backends = {"only": {"url": vllm.url, "limit": TOGETHER}}
    config.write_text(json.dumps({"port": port, "workers": 1, "backends": backends}))
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
    with Server(command, port, log=logs / "narrow.log") as server:
        server.wait_until_ready("/ready", 120)
        yield server


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_left_in_the_engine_in_whatever_phase_clients_leave(
    vllm: Server, narrow: Server, phase: str
) -> None:
    # The figure is made with 200 (python -m bench leave); here, enough to notice a leak.
    place = Place(narrow.url, vllm.url, "tiny")
    left = asyncio.run(leave(place, phase, 3 * TOGETHER, Random(phase)))
    assert left.missed < left.times / 2, "the phase was not met"
    assert left.worst < _STOPS_WITHIN
    counters = Metrics(narrow.url)
    seconds_until(lambda: counters.total("forebay_in_flight_requests") == 0, within=_STOPS_WITHIN)
