"""Which of several models a request means; the same rule in every process."""

from collections.abc import Mapping
from typing import TypeVar

from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.requests import Document, model_name

_T = TypeVar("_T")


def resolve(models: Mapping[str, _T], document: Document) -> _T:
    """The model that the request names, or the only one there is when it names none."""
    name = model_name(document)
    if name is None:
        if len(models) == 1:
            return next(iter(models.values()))
        raise InvalidRequest("model is required", param="model", code="model_required")
    try:
        return models[name]
    except KeyError:
        raise InvalidRequest(
            f"The model `{name}` does not exist.", param="model", code="model_not_found"
        ) from None
