"""Sends spans by OTLP over HTTP with the official SDK, in batches, from a thread of its own.

An endpoint that is not there costs the requests nothing: the SDK's queue is bounded, and drops.
"""

import asyncio
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from gateway import __version__
from gateway.http_types import Request
from gateway.record import RequestRecord
from gateway.tracing.config import TracingConfig
from gateway.tracing.context import TRACEPARENT, Trace, begin
from gateway.tracing.spans import request_span, stage_spans

EXPORT_INTERVAL = 1.0
EXPORT_TIMEOUT = 2.0
"""Seconds for a batch, tries included; so long, too, may a stop of the gateway wait for it."""


class Tracing:
    """`begin` when a request comes, `ended` when it has ended; nothing in between."""

    def __init__(self, config: TracingConfig) -> None:
        self._sample = config.sample
        self._ids = _Ids()
        resource = Resource.create(
            {"service.name": config.service_name, "service.version": __version__}
        )
        self._provider = TracerProvider(
            id_generator=self._ids, resource=resource, shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(endpoint=config.endpoint, timeout=EXPORT_TIMEOUT)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=EXPORT_INTERVAL * 1e3)
        )
        self._tracer = self._provider.get_tracer("forebay", __version__)

    def begin(self, request: Request) -> Trace:
        """The request's place in its trace, decided before the backend hears of it."""
        return begin(request.headers.get(TRACEPARENT), self._sample)

    def ended(self, trace: Trace, record: RequestRecord) -> None:
        """Make the spans of a request that ends now."""
        if not trace.sampled:
            return
        whole = request_span(record, time.time_ns())
        self._ids.give(trace)
        parent = _context(trace.trace_id, trace.parent) if trace.parent else None
        span = self._tracer.start_span(
            whole.name,
            context=set_span_in_context(NonRecordingSpan(parent)) if parent else None,
            kind=SpanKind.SERVER,
            attributes=whole.attributes,
            start_time=whole.start,
        )
        if whole.error:
            span.set_status(Status(StatusCode.ERROR, whole.error))
        inside = set_span_in_context(span)
        for stage in stage_spans(record, whole):
            child = self._tracer.start_span(stage.name, context=inside, start_time=stage.start)
            child.end(stage.end)
        span.end(whole.end)

    async def stop(self) -> None:
        """Send what is left, as far as the endpoint takes it."""
        await asyncio.to_thread(self._provider.shutdown)


class _Ids(IdGenerator):
    """Gives the next span the ids that were chosen when its request began, others new ones."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: Trace | None = None

    def give(self, trace: Trace) -> None:
        self._next = trace

    def generate_span_id(self) -> int:
        trace, self._next = self._next, None
        return self._random.generate_span_id() if trace is None else trace.span_id

    def generate_trace_id(self) -> int:
        return self._random.generate_trace_id() if self._next is None else self._next.trace_id


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))
