"""The settings of what changes by itself."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.peak import Windows, Zone
from gateway.schema import Count, Schema, Seconds, Share


class UtilizationConfig(Schema):
    """Source: adjust_memory_utilization. Its marks were times; here they are shares of a class's
    `ttft_target`: with the short class's 0.6 s they are the source's 600 and 200 ms."""

    apply: Annotated[
        bool, Field(description="on: `forebay up` restarts engines as recommended, in the windows")
    ] = False
    windows: Windows = ()
    timezone: Zone = "UTC"
    interval: Annotated[Seconds, Field(description="between two looks at it")] = 10.0
    high: Annotated[
        float, Field(gt=0, le=100, description="mean TTFT over target above this: take less")
    ] = 1.0
    low: Annotated[
        float, Field(ge=0, le=100, description="mean TTFT over target below this: take more")
    ] = 0.33
    samples: Annotated[
        int,
        Field(
            ge=30,
            le=10_000,
            description="TTFTs compared, before and after; as many not worse: it stays",
        ),
    ] = 200
    margin: Annotated[
        float, Field(ge=0, le=10, description="a p99, p90 or median TTFT longer by more is worse")
    ] = 0.2
    watch: Annotated[
        Seconds, Field(description="after so long fewer TTFTs decide; with less than 30, back")
    ] = 3600.0
    rest: Annotated[Seconds, Field(description="least time between two trials of one engine")] = (
        86_400.0
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.apply and not self.windows:
            raise ValueError(
                "apply needs windows in which engines may be restarted, as `* 2-4 * * *`"
            )
        if self.low >= self.high:
            raise ValueError("low must be below high")
        return self


class TuningConfig(Schema):
    """How class boundaries and burst settings follow the traffic."""

    enabled: Annotated[
        bool, Field(description="on: boundaries and burst settings follow the traffic")
    ] = False
    interval: Annotated[Seconds, Field(description="between two looks at the traffic")] = 10.0
    memory: Annotated[
        Seconds, Field(description="what came so long ago counts for a third of what comes now")
    ] = 300.0
    samples: Annotated[
        Count, Field(description="prompts that must be remembered before anything changes")
    ] = 500
    dwell: Annotated[Seconds, Field(description="least time between two changes of a value")] = (
        120.0
    )
    span: Annotated[
        float,
        Field(ge=1, le=100, description="a value stays within its configured one / and × this"),
    ] = 4.0
    margin: Annotated[
        Share, Field(description="by so much a share must be off before it counts")
    ] = 0.1
    burst_share: Annotated[
        float,
        Field(gt=0, lt=0.5, description="at most so many of the prompts are burst prompts"),
    ] = 0.05
