"""Traced requests through a whole gateway, as a collector and a backend see them."""

import subprocess
import sys

import aiohttp
from aiohttp import web
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.gateway.tracing.receiver import attributes, receiver
from tests.gateway.ui.quick import cache_dir, start_engine, start_gateway
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL
from tests.sites import listening_in

__all__ = ["cache_dir", "start_engine", "start_gateway"]

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True}


class Heard(list[str | None]):
    """The `traceparent` of each chat that a backend was sent."""

    def __call__(self, request: web.Request) -> None:
        if request.path == "/v1/chat/completions":
            self.append(request.headers.get("traceparent"))


async def ask(url: str, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json=BODY, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


async def test_a_request_is_one_span_with_its_stages_and_the_backends_parent(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    heard = Heard()
    async with receiver() as collector, listening_in(engine.url, heard) as url:
        gateway = await start_gateway(
            backends={"a": {"url": url}}, tracing={"endpoint": collector.url}
        )
        heard.clear()
        assert await ask(gateway.url, traceparent=f"00-{TRACE}-{CALLER}-01") == 200
        spans = await collector.until(lambda spans: any(s.kind == 2 for s in spans))
        (whole,) = (span for span in spans if span.kind == Span.SpanKind.SPAN_KIND_SERVER)
        assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, CALLER)
        assert heard == [f"00-{TRACE}-{whole.span_id.hex()}-01"], "vLLM's parent is our span"
        stages = {s.name: s for s in spans if s.parent_span_id == whole.span_id}
        order = ("read", "tokenize", "queue", "connect", "backend", "stream")
        assert list(stages) == [f"forebay.{name}" for name in order]
        assert all(s.trace_id == whole.trace_id for s in stages.values())
        assert whole.start_time_unix_nano <= stages["forebay.read"].start_time_unix_nano
        assert stages["forebay.stream"].end_time_unix_nano <= whole.end_time_unix_nano
        told = attributes(whole)
        assert (told["gen_ai.request.model"], told["forebay.backend"]) == (MODEL, "a")
        assert told["gen_ai.usage.input_tokens"] > 0  # type: ignore[operator]
        assert collector.resource["service.name"] == "forebay"


async def test_a_failed_request_is_an_error_and_one_that_is_not_sampled_is_not_sent(
    start_gateway: StartGateway,
) -> None:
    async with receiver() as collector:
        gateway = await start_gateway(
            backends={"a": {"url": "http://127.0.0.1:1"}},
            tracing={"endpoint": collector.url},
            wait=False,
        )
        assert await ask(gateway.url, traceparent=f"00-{TRACE}-{CALLER}-00") == 503
        assert await ask(gateway.url) == 503
        spans = await collector.until(bool)
        (whole,) = (span for span in spans if span.kind == Span.SpanKind.SPAN_KIND_SERVER)
        assert whole.trace_id.hex() != TRACE
        assert whole.status.code == Status.StatusCode.STATUS_CODE_ERROR
        assert attributes(whole)["http.response.status_code"] == 503


async def test_a_collector_that_is_not_there_delays_nobody_and_untraced_headers_go_on_unchanged(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine()
    heard = Heard()
    async with listening_in(engine.url, heard) as url:
        nowhere = {"endpoint": "http://127.0.0.1:1/v1/traces"}
        traced = await start_gateway(backends={"a": {"url": url}}, tracing=nowhere)
        assert await ask(traced.url) == 200
        gateway = await start_gateway(backends={"a": {"url": url}})
        heard.clear()
        header = f"00-{TRACE}-{CALLER}-01"
        assert await ask(gateway.url, traceparent=header) == 200
        assert heard == [header]


def test_without_the_sdk_the_message_says_what_to_install() -> None:
    """The SDK hidden as it would be where the extra was not installed."""
    code = """
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "opentelemetry" else found(name, *rest)
from gateway.tracing.config import TracingConfig
TracingConfig(endpoint="http://collector/v1/traces")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "pip install 'forebay[tracing]'" in ended.stderr
