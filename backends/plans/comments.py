"""The comments of a plan file: YAML's parsers drop them, but a plan's reasons are there. Pure."""

import re
from collections.abc import Iterator
from itertools import takewhile

import yaml

_COMMENT = re.compile(r"\s+#\s*(\S.*?)\s*$")


def beside(text: str) -> dict[tuple[str, str, str], str]:
    """What stands behind a value on its line, by engine, part (`flags`, `environment`) and name."""
    lines, found = [*text.splitlines(), ""], {}
    plan = dict(_items(yaml.compose(text, Loader=yaml.SafeLoader)))
    for engine, named in _items(plan.get("engines")):
        for part, values in _items(named):
            for name, value in _items(values):
                end = value.end_mark
                if comment := _COMMENT.match(lines[end.line][end.column :]):
                    found[engine, part, name] = comment[1]
    return found


def above(text: str) -> tuple[str, ...]:
    """The lines of comment that a file begins with."""
    first = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return tuple(line.removeprefix("#").strip() for line in first)


def _items(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """Of a mapping its names and values; nothing of anything else."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, value
