"""A field's value, if it has the shape that a conversion to a chat is proved for; else Unproved."""

from collections.abc import Mapping
from typing import Any

from tokenizer_pool.eligibility import MESSAGE_FIELD, Unproved


def as_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Unproved(MESSAGE_FIELD)
    return value


def as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise Unproved(MESSAGE_FIELD)
    return value


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Unproved(MESSAGE_FIELD)
    return value
