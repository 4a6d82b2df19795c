"""Who sends a request: its API key, looked up before its body is read into tokens.

Clients of OpenAI's send `Authorization: Bearer KEY`, Anthropic's `x-api-key: KEY`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from gateway.errors import ClientError
from gateway.http_types import Request
from gateway.tenancy.config import KeyConfig
from gateway.tenancy.keys import ANYONE, Identity, KeyRing

_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


class Access:
    """The keys in force, in the process that serves requests."""

    def __init__(self, keys: Mapping[str, KeyConfig]) -> None:
        self._ring = KeyRing(keys)

    def configure(self, keys: Mapping[str, KeyConfig]) -> None:
        self._ring = KeyRing(keys)

    @property
    def is_open(self) -> bool:
        """Whether there are no keys: then a client's own `Authorization` is for the backend."""
        return self._ring.is_open

    def identify(self, request: Request) -> Identity:
        """Raises ClientError (401) for a key that is missing, wrong, revoked or expired."""
        if self._ring.is_open:
            return ANYONE
        secret = _secret(request)
        found = self._ring.identify(secret, datetime.now(UTC))
        if found is None:
            told = "is not known here, was revoked, or has expired" if secret else "is missing"
            message = (
                f"the API key {told}; send it as `Authorization: Bearer KEY` (or `x-api-key: KEY`)"
            )
            raise ClientError(401, message, code="invalid_api_key").carrying(_CHALLENGE)
        return found


def _secret(request: Request) -> str | None:
    scheme, _, secret = (request.header(b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return secret.strip()
    return request.header(b"x-api-key")
