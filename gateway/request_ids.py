"""The id of a request: what its client, the engine, the log and a trace call it by."""

import itertools
import re
import secrets
from typing import Final

from gateway.http_types import Request

_FIT: Final = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIds:
    """Ids that no other process makes: it asks for randomness once, not once a request."""

    def __init__(self) -> None:
        self._start = secrets.token_hex(8)
        self._numbers = itertools.count()

    def of(self, request: Request) -> str:
        """The client's own id where it is fit to be a header and a log field, else a new one."""
        given = request.headers.get(b"x-request-id")
        if given is not None and _FIT.fullmatch(given):
            return given.decode()
        return f"{self._start}{next(self._numbers):016x}"
