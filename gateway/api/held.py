"""Which backend holds a stored response: its id says so.

vLLM stores responses in its own memory, so a request that goes on from one must reach the same
server. It lets the request choose the id, so the gateway chooses one that names the backend, by a
hash of its address. Nothing is remembered here: every process and every gateway of the same
backends reads the same name, also after a restart.
"""

import re
import secrets
from collections.abc import Mapping
from hashlib import blake2s
from typing import Final

from gateway.directory import Directory, Row

_ID: Final = re.compile(r"resp_([0-9a-f]{8})[0-9a-f]{24}")


def tag(url: str) -> str:
    """A backend's address in eight hexadecimal digits."""
    return blake2s(url.encode(), digest_size=4).hexdigest()


def new_id(url: str) -> str:
    """An id, as random as vLLM's own, for a response that this backend will hold."""
    return f"resp_{tag(url)}{secrets.token_hex(12)}"


def holder(response_id: str, rows: Mapping[str, Row]) -> str | None:
    """The name of the backend that the id names; None when it names none of these."""
    found = _ID.fullmatch(response_id)
    if found is None:
        return None
    named = found[1]
    for name, row in rows.items():
        if row.spec is not None and tag(row.spec.url) == named:
            return name
    return None


def with_id(body: bytes, backend: str, directory: Directory) -> bytes:
    """A request's JSON with an id for its response; the body ends with the object's brace."""
    row = directory.rows.get(backend)
    if row is None or row.spec is None:
        return body
    return b'%b,"request_id":"%b"}' % (body[:-1], new_id(row.spec.url).encode())
