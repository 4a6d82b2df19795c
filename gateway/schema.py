"""What every part of the settings' schema is made of: the base model, and the kinds of values.

The settings themselves are in `config` and in the packages that they are about. A value may come
as YAML or as the plain text that a person types into a Redis hash; both mean the same here.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from redis.asyncio.connection import parse_url

NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME)]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]+$")]
Url = Annotated[str, Field(pattern=r"^https?://[^/\s]+/?$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


def redis_urls(value: str) -> str:
    """Several with commas between. Raises ValueError for one that the client would not take."""
    for url in value.split(","):
        try:
            parse_url(url)
        except ValueError as error:
            form = "redis://HOST:PORT, rediss://HOST:PORT or unix://PATH"
            raise ValueError(f"not the URL of a Redis: write {form} ({error})") from error
    return value


class Schema(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _split(value: Any) -> Any:
    """`a, b` as a person types it."""
    if not isinstance(value, str):
        return value
    return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)


def _pairs(value: Any) -> Any:
    """`a=1, b=2` as a person types it."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, str] = {}
    for piece in _split(value):
        name, separator, number = piece.partition("=")
        if not separator:
            raise ValueError(f"write NAME=NUMBER with commas between, not {piece!r}")
        pairs[name.strip()] = number.strip()
    return pairs


Names = Annotated[tuple[Name, ...], BeforeValidator(_split)]
ModelNames = Annotated[tuple[ModelName, ...], BeforeValidator(_split)]
Shares = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1)], ...], BeforeValidator(_split), Field(min_length=1)
]
Limits = Annotated[
    Mapping[Name, Annotated[int, Field(ge=0, le=1_000_000)]], BeforeValidator(_pairs)
]
