"""A request's spans, made of its record when it has ended: one for the request, one per stage.

Names and attributes follow OpenTelemetry's semantic conventions for generative AI and HTTP as far
as they go; what only Forebay has is under `forebay.`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.record import Outcome, RequestRecord

STREAM: Final = "stream"
"""What comes after the first token; not a stage of the TTFT."""

_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
_NOT_OUR_ERRORS: Final = frozenset({Outcome.COMPLETED, Outcome.ABANDONED, Outcome.INVALID})
NANOSECONDS: Final = 1_000_000_000

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """Times in nanoseconds of Unix time; `error` is empty when it went well."""

    name: str
    start: int
    end: int
    attributes: dict[str, Value]
    error: str = ""


def request_span(record: RequestRecord, ended: int) -> Span:
    """The whole request, which ended at `ended`."""
    operation = _OPERATIONS.get(record.path, record.path)
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "vllm",
        "http.request.method": "POST",
        "url.path": record.path,
        "http.response.status_code": record.status,
        "forebay.request_id": record.request_id,
        "forebay.outcome": record.outcome.value,
        "forebay.attempts": record.attempts,
        "forebay.stream": record.stream,
    }
    told: dict[str, str | int | float | None] = {
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.response.time_to_first_chunk": record.ttft,
        "forebay.class": record.service_class,
        "forebay.backend": record.backend,
        "forebay.channel": record.channel,
    }
    attributes |= {name: value for name, value in told.items() if value}
    failed = record.outcome not in _NOT_OUR_ERRORS
    if failed:
        attributes["error.type"] = record.error.partition(":")[0] or record.outcome.value
    return Span(
        name=f"{operation} {record.model}".strip(),
        start=ended - round(record.e2e * NANOSECONDS),
        end=ended,
        attributes=attributes,
        error=(record.error or record.outcome.value) if failed else "",
    )


def stage_spans(record: RequestRecord, whole: Span) -> Iterator[Span]:
    """The stages, one after the other from the request's start; then the rest of the stream."""
    at = whole.start
    for stage, seconds in record.stages.items():
        end = min(at + round(seconds * NANOSECONDS), whole.end)
        yield Span(f"forebay.{stage}", at, end, {})
        at = end
    if record.ttft is not None:
        yield Span(f"forebay.{STREAM}", at, whole.end, {})
