"""A collector for tests: a real HTTP server that takes OTLP as protobuf."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """The spans that came, and the attributes of their resource."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        self.url = ""
        self._more = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        async with self._more:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = {a.key: a.value.string_value for a in group.resource.attributes}
                for scope in group.scope_spans:
                    self.spans.extend(scope.spans)
            self._more.notify_all()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def until(self, enough: Callable[[list[Span]], bool]) -> list[Span]:
        async with asyncio.timeout(15), self._more:
            await self._more.wait_for(lambda: enough(self.spans))
        return self.spans


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    collector = Receiver()
    application = web.Application()
    application.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield collector
    finally:
        await runner.cleanup()


def attributes(span: Span) -> dict[str, object]:
    values = {a.key: a.value for a in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}
