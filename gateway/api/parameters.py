"""Header values with parameters, as `form-data; name="file"; filename="a.wav"`.

Servers differ in how they read what is unusual here: extended parameters (`name*=`), a parameter
given twice, quotes that do not close. Such a value is not read at all, so that nobody behind the
gateway can find something else in it.
"""

import re
from typing import Final

_KIND: Final = re.compile(rb"[ \t]*+([!#$&^_.+\-/\w]++)[ \t]*+")
_PARAMETER: Final = re.compile(
    rb";[ \t]*+(?P<key>[^\s;=\"\\\x00-\x1f\x7f]++)[ \t]*+=[ \t]*+"
    # Readers that count quotes take a backslash before the last one for an escaped quote.
    rb'(?:"(?P<quoted>(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\\\x00-\x1f\x7f]|\\\\(?!"))*+)"[ \t]*+'
    rb'|(?P<bare>[^;"\\\x00-\x08\x0a-\x1f\x7f]++))'
)


def read(value: bytes, own: frozenset[bytes]) -> tuple[bytes, dict[bytes, bytes]] | None:
    """The kind, in lower case, and the parameters that are in `own`; None when that is not plain.

    A quoted value keeps its backslashes; one of `own` must have none. Others may be anything.
    """
    head = _KIND.match(value)
    if head is None:
        return None
    found: dict[bytes, bytes] = {}
    place = head.end()
    while place < len(value):
        parameter = _PARAMETER.match(value, place)
        if parameter is None:
            return None
        place = parameter.end()
        key = parameter["key"].lower()
        if key.partition(b"*")[0] not in own:
            continue
        quoted, bare = parameter["quoted"], parameter["bare"]
        told = bare.rstrip(b" \t") if quoted is None else quoted
        if key in found or b"*" in key or b"\\" in told:
            return None
        found[key] = told
    return head[1].lower(), found
