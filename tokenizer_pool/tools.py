"""Tools as vLLM 0.32 hands them to a chat template, and their JSON as templates print it.

An application sends the same tools with each of its requests, so what was made of them is kept
for the next one. Messages are in `messages`.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from tokenizer_pool.eligibility import TOOL_SHAPE, Unproved
from tokenizer_pool.errors import InvalidRequest

_FUNCTION_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})
_MEMO_ENTRIES: Final = 64
_MEMO_ENTRY_BYTES: Final = 64 * 1024

# As `json.dumps(value, ensure_ascii=False)`, without building an encoder for each call. What was
# parsed from JSON has no cycles to look for.
plain_json: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


class Tool(dict[str, Any]):
    """A normalised tool that knows its own JSON. Nobody changes it: requests share it."""

    __slots__ = ("json",)

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.json = plain_json(values)


_IS: Final[dict[str, Callable[[Any], bool]]] = {
    "description": lambda value: value is None or isinstance(value, str),
    "parameters": lambda value: value is None or isinstance(value, dict),
    "strict": lambda value: value is None or isinstance(value, bool),
}


def _tool(tool: Any, index: int) -> Tool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("a tool needs a function with a name", param=f"tools[{index}]")
    if (
        tool.get("type", "function") != "function"
        or not tool.keys() <= {"type", "function"}
        or not function.keys() <= _FUNCTION_FIELDS
        or not all(check(function.get(name)) for name, check in _IS.items())
    ):
        raise Unproved(TOOL_SHAPE)
    normal = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    if function.get("strict") is not None:
        normal["strict"] = function["strict"]
    try:
        return Tool({"type": "function", "function": normal})
    except RecursionError:
        raise Unproved(TOOL_SHAPE) from None


def normalise_tools(tools: Any) -> list[Tool] | None:
    """The tools as vLLM's request model dumps them: absent fields appear as null.

    Raises InvalidRequest for what vLLM refuses, Unproved for what we do not know to be equal.
    """
    if tools is None:
        return None
    if not isinstance(tools, list) or not tools:
        raise InvalidRequest("tools must be a list with at least one tool", param="tools")
    return [_tool(tool, index) for index, tool in enumerate(tools)]


class ToolMemo:
    """The last lists of tools that were normalised: 64 at most, each of 64 KiB at most."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, list[Tool]] = OrderedDict()

    def normalise(self, tools: Any, key: bytes) -> list[Tool] | None:
        """As `normalise_tools`; `key` are the same tools as JSON."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        normal = normalise_tools(tools)
        if normal is not None and len(key) <= _MEMO_ENTRY_BYTES:
            self._known[key] = normal
            if len(self._known) > _MEMO_ENTRIES:
                self._known.popitem(last=False)
        return normal
