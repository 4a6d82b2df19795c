"""The table of keys as people read it: in `forebay ctl explain` and in docs/operations.md.

Everything in it comes from the schema, so that it cannot say anything else than what is enforced.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic_core import PydanticUndefined

from gateway.control.keys import KINDS, PREFIX, Kind

_TYPES = {"integer": "whole number", "number": "number", "boolean": "on or off", "string": "text"}
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


class Row(NamedTuple):
    """One field of one kind of key."""

    key: str
    field: str
    type: str
    range: str
    default: str
    effect: str


def rows(word: str | None = None) -> Iterator[Row]:
    """The fields of one kind of key (`class`), or of all."""
    for name, kind in KINDS.items():
        if word in (None, name):
            entry = f":<{'model' if name == 'canary' else name}>" if kind.named else ""
            yield from _of(kind, f"{PREFIX}{name}{entry}")


def markdown() -> str:
    """The table for docs/operations.md."""
    lines = ["| key | field | type | range | default | effect |", "| --- " * 6 + "|"]
    for row in rows():
        key, field = f"`{row.key}`", f"`{row.field}`"
        lines.append(f"| {' | '.join((key, field, *row[2:]))} |")
    return "\n".join(lines)


def _of(kind: Kind, key: str) -> Iterator[Row]:
    schema = kind.schema.model_json_schema()
    for name, field in kind.schema.model_fields.items():
        if kind.knows(name):
            shape = _resolve(schema["properties"][name], schema)
            default = _default(field.get_default(call_default_factory=True))
            effect = field.description or ""
            yield Row(key, name, _type(shape), _range(shape), default, effect)


def _resolve(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The shape with references and `or null` folded into it."""
    if "$ref" in shape:
        target: Mapping[str, Any] = schema["$defs"][shape["$ref"].rpartition("/")[2]]
        return dict(target)
    if "anyOf" in shape:
        return {**next(s for s in shape["anyOf"] if s.get("type") != "null"), "optional": True}
    return dict(shape)


def _type(shape: Mapping[str, Any]) -> str:
    if "enum" in shape:
        return "word"
    if shape.get("format") == "date-time":
        return "time"
    if shape["type"] == "array":
        return "list"
    if shape["type"] == "object":
        return "`name=number` list"
    return _TYPES[shape["type"]]


def _range(shape: Mapping[str, Any]) -> str:
    if "enum" in shape:
        return ", ".join(shape["enum"])
    inner = shape.get("additionalProperties") or shape.get("items") or shape
    parts = [f"{sign} {_number(inner[name])}" for name, sign in _BOUNDS if name in inner]
    if "maxLength" in shape and "pattern" not in shape:
        parts.append(f"up to {shape['maxLength']} characters")
    if shape.get("optional"):
        parts.append("or none")
    return ", ".join(parts) or "–"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _default(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float():
            return f"{value:g}" if abs(value) < 1e6 else _number(value)
        case tuple():
            return ", ".join(_default(item) for item in value) or "–"
        case str():
            return value or "–"
    return "must be given" if value is PydanticUndefined else getattr(value, "value", "–")


if __name__ == "__main__":
    print(markdown())  # noqa: T201 - the program's output
