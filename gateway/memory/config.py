"""The setting of the memory check."""

from typing import Annotated

from pydantic import Field

from gateway.schema import Schema


class MemoryCheckConfig(Schema):
    """Source: memory is looked at every hour."""

    interval: Annotated[float | None, Field(ge=60, le=86_400)] = 3600.0
