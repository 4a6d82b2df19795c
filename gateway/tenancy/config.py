"""The schema of tenants, API keys and models: what each may be told in the file and in Redis."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from gateway.schema import Count, Limits, ModelNames, Name, Schema


class TenantConfig(Schema):
    """Who shares the engines with others, and how much of them."""

    models: Annotated[
        ModelNames, Field(description="models it may ask, with commas; empty: all of them")
    ] = ()
    classes: Annotated[
        Limits,
        Field(
            default_factory=dict,
            description="`class=N`, with commas: its requests of a class at a time; 0: none",
        ),
    ]
    priority: Annotated[
        int,
        Field(
            ge=-100,
            le=100,
            description="each step is worth `scheduler.ageing` seconds of waiting",
        ),
    ] = 0
    weight: Annotated[
        float,
        Field(gt=0, le=1000, description="share of the engines beside other waiting tenants"),
    ] = 1.0
    requests_per_minute: Annotated[
        Count | None, Field(description="requests in any 60 seconds, over all gateways")
    ] = None
    tokens_per_minute: Annotated[
        Annotated[int, Field(ge=1, le=10**12)] | None,
        Field(description="prompt and answer tokens in any 60 seconds, over all gateways"),
    ] = None
    concurrent: Annotated[
        Count | None, Field(description="requests waiting or in flight, over all gateways")
    ] = None


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:  # pydantic lets only a ValueError become a refusal
        raise ValueError("the time is out of range: give a year from 1 to 9999, in UTC") from error


class KeyConfig(Schema):
    """An API key: only its hash is kept. The name of the entry is what the log shows."""

    tenant: Annotated[Name, Field(description="whose key it is")]
    sha256: Annotated[
        str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the whole key, in hex")
    ]
    note: Annotated[str, Field(max_length=200, description="what it is for")] = ""
    created: Annotated[
        Annotated[AwareDatetime, AfterValidator(_utc)] | None, Field(description="when it was made")
    ] = None
    expires: Annotated[
        Annotated[AwareDatetime, AfterValidator(_utc)] | None,
        Field(description="refused after this time, as 2027-01-31T00:00:00Z"),
    ] = None


class ModelConfig(Schema):
    """What holds for all requests for one model, whoever sends them."""

    paused: Annotated[
        bool, Field(description="on: its requests are refused with 503, those in flight finish")
    ] = False
    max_prompt_tokens: Annotated[
        Count | None, Field(description="a longer prompt is refused with 400")
    ] = None
    concurrent: Annotated[
        Count | None, Field(description="requests waiting or in flight, over all gateways")
    ] = None
