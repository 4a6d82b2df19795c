"""The schema of what gateways that share backends agree on."""

from typing import Annotated

from pydantic import Field

from gateway.schema import Schema


class ReplicasConfig(Schema):
    """How shares are held. All gateways of one Redis need the same."""

    ttl: Annotated[
        float, Field(ge=0.2, le=60, description="a gateway not heard of for so long is gone")
    ] = 3.0
    expected: Annotated[
        int, Field(ge=1, le=1000, description="gateways to divide by before Redis ever answered")
    ] = 1
