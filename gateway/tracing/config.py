"""The settings of tracing."""

from importlib.util import find_spec
from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.schema import Schema, Share


class TracingConfig(Schema):
    """`endpoint` is where OTLP over HTTP is taken, with its path; without one nothing is traced.

    `sample` is the share of the requests that are traced, of those that don't come with a decision
    of their caller's.
    """

    endpoint: Annotated[str | None, Field(pattern=r"^https?://\S+$")] = None
    sample: Share = 1.0
    service_name: str = "forebay"

    @model_validator(mode="after")
    def _installed(self) -> Self:
        if self.endpoint is not None and find_spec("opentelemetry") is None:
            raise ValueError("tracing needs the OpenTelemetry SDK: pip install 'forebay[tracing]'")
        return self
