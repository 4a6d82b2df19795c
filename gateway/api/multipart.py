"""The `model` field of a form: all that routing a recording needs to know.

The form itself goes to the backend as it came; nothing is decoded but the one value.
"""

import re
from email.message import Message
from typing import Final

from tokenizer_pool.errors import InvalidRequest

_NAME: Final = re.compile(rb'(?im)^content-disposition:[^\r\n]*;\s*name="?model"?\s*(?:;|\r?$)')
_MAX_VALUE: Final = 1024
_BLANK: Final = b"\r\n\r\n"


def boundary_of(content_type: str) -> bytes | None:
    """The boundary that a form's content type names; None when it is no form."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if message.get_content_type() != "multipart/form-data" or not boundary:
        return None
    return boundary.encode("latin-1", "replace")


def model_in(body: bytes, boundary: bytes) -> tuple[int, int] | None:
    """Where the value of the form's `model` field begins and ends; None when it has none."""
    mark = b"--" + boundary
    start = body.find(mark)
    while start >= 0:
        head = start + len(mark)
        blank = body.find(_BLANK, head)
        start = body.find(b"\r\n" + mark, head)
        if blank < 0 or start < 0:
            return None
        if blank < start and _NAME.search(body[head : min(blank, head + _MAX_VALUE)]):
            value = blank + len(_BLANK)
            if start - value > _MAX_VALUE:
                raise InvalidRequest("model is too long", param="model")
            return value, start
        start += 2
    return None
