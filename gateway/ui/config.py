"""The settings of the admin listener."""

from typing import Annotated

from pydantic import Field

from gateway.schema import Schema


class AdminConfig(Schema):
    """Without a port there is none. It has no authentication: keep it on an address that only
    operators reach."""

    host: str = "127.0.0.1"
    port: Annotated[int | None, Field(ge=0, le=65535)] = None
