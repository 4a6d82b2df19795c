"""Forms: which fields one has, which model it asks for, and how it goes on to the backend.

No value is decoded but that of `model`; recordings are never looked at. What a server could read
in another way is refused (`parameters`): were it guessed here, a client could name one model to the
gateway and another to the engine.
"""

import codecs
import re
from dataclasses import dataclass
from typing import Final

from gateway.api import parameters
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.requests import STRIPPED

MOST_PARTS: Final = 1000
_MOST_HEAD: Final = 8192
_MOST_MODEL: Final = 1024
_MOST_BOUNDARY: Final = 256
_FORM: Final = b"multipart/form-data"
_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~\w]++):([^\x00-\x08\x0a-\x1f\x7f]*+)")
_OF_FORM: Final = frozenset((b"boundary", b"charset"))
_OF_PART: Final = frozenset((b"name",))
_CUT: Final = frozenset(name.encode() for name in STRIPPED)


@dataclass(frozen=True, slots=True)
class Part:
    """A field: its value is at `value:end`, and all of it, with its boundary, at `start:next`."""

    name: bytes
    start: int
    value: int
    end: int
    next: int


def boundary_of(content_type: str) -> bytes | None:
    """The boundary that a form's content type names; None when it is no form.

    Raises InvalidRequest for a form whose boundary could be read in more than one way.
    """
    raw = content_type.encode("latin-1", "replace")
    if raw.partition(b";")[0].strip().lower() != _FORM:
        return None
    _, told = parameters.read(raw, _OF_FORM) or (_FORM, {})
    boundary = told.get(b"boundary", b"")
    if not 0 < len(boundary) <= _MOST_BOUNDARY:
        raise _unreadable(
            "its content type does not name one plain boundary; send "
            "`multipart/form-data; boundary=…`"
        )
    if not _is_utf8(told.get(b"charset", b"utf-8")):
        raise _unreadable("its charset is not utf-8; leave the charset out of the content type")
    return boundary


def parts_of(body: bytes, boundary: bytes) -> list[Part]:
    """The form's fields, in their order. Raises InvalidRequest."""
    mark = b"--" + boundary
    start = 2 if body.startswith(b"\r\n") else 0
    if not body.startswith(mark, start):
        raise _unreadable("it does not begin with the boundary that its content type names")
    parts: list[Part] = []
    while (after := body[start + len(mark) : start + len(mark) + 2]) != b"--":
        if after != b"\r\n":
            raise _unreadable("its boundary is followed by something else than a line's end")
        if len(parts) == MOST_PARTS:
            raise _unreadable(f"a form may have {MOST_PARTS} fields; send fewer")
        part = _part(body, mark, start)
        parts.append(part)
        start = part.next
    return parts


def _part(body: bytes, mark: bytes, start: int) -> Part:
    """The field whose boundary is at `start`."""
    head = start + len(mark) + 2
    blank = body.find(b"\r\n\r\n", head, head + _MOST_HEAD)
    name = None if blank < 0 else _name(body[head:blank])
    if name is None:
        raise _unreadable(
            "the head of a field is not plain; give each field one line "
            '`Content-Disposition: form-data; name="…"`'
        )
    value = blank + 4
    end = body.find(b"\r\n" + mark, value)
    if end < 0:
        raise _unreadable("its last boundary is missing; send all of it")
    return Part(name, start, value, end, end + 2)


def _name(head: bytes) -> bytes | None:
    """The name of the field with this head; None when there is not exactly one."""
    name = None
    for line in head.split(b"\r\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        if found[1].lower() != b"content-disposition":
            continue
        kind, told = parameters.read(found[2], _OF_PART) or (b"", {})
        if name is not None or kind != b"form-data":
            return None
        name = told.get(b"name")
        if name is None:
            return None
    return name


def model_in(body: bytes, parts: list[Part]) -> str | None:
    """The model that the form asks for; None when it names none. Raises InvalidRequest."""
    named = [part for part in parts if part.name == b"model"]
    if len(named) > 1:
        message = "the form has more than one field `model`; send one"
        raise InvalidRequest(message, param="model", code="invalid_form")
    if not named:
        return None
    if named[0].end - named[0].value > _MOST_MODEL:
        raise InvalidRequest("model is too long", param="model", code="invalid_model")
    return body[named[0].value : named[0].end].decode("utf-8", "replace") or None


def as_sent(body: bytes, parts: list[Part], model: str | None) -> bytes:
    """The form as it goes to the backend: with this model in place of the client's (None: as it
    is), and without what a client may not steer."""
    pieces: list[memoryview | bytes] = []
    view, kept = memoryview(body), 0
    for part in parts:
        if part.name in _CUT:
            pieces.append(view[kept : part.start])
            kept = part.next
        elif part.name == b"model" and model is not None:
            pieces += (view[kept : part.value], model.encode())
            kept = part.end
    return b"".join((*pieces, view[kept:])) if pieces else body


def _is_utf8(charset: bytes) -> bool:
    try:
        return codecs.lookup(charset.decode("ascii")).name == "utf-8"
    except (LookupError, UnicodeDecodeError):
        return False


def _unreadable(why: str) -> InvalidRequest:
    return InvalidRequest(f"this form cannot be read: {why}", code="invalid_form")
