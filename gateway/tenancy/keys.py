"""API keys: made, hashed, and recognised again.

Only the SHA-256 of a key is kept. A key is 256 bits of randomness, so its hash need not be slow.
It is found by the first bytes of its own hash, and compared in constant time: what the time of a
look-up could tell is a part of a hash, which is no way to the key.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from gateway.tenancy.config import KeyConfig

_INDEX = 4


@dataclass(frozen=True, slots=True)
class NewKey:
    """`secret` is shown once and kept nowhere; `name` is what logs show of it."""

    name: str
    secret: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request it is, and by which key (for the log)."""

    tenant: str
    key: str


ANYONE = Identity("", "")
"""Who asks a gateway that has no keys."""


class _Known(NamedTuple):
    digest: bytes
    identity: Identity
    expires: float


def new_key() -> NewKey:
    name = f"fb-{secrets.token_hex(4)}"
    secret = f"{name}-{secrets.token_urlsafe(32)}"
    return NewKey(name, secret, sha256(secret).hex())


def sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class KeyRing:
    """The keys in force. Without any, everyone may ask."""

    __slots__ = ("_by_index", "is_open")

    def __init__(self, keys: Mapping[str, KeyConfig]) -> None:
        self.is_open = not keys
        self._by_index: dict[bytes, list[_Known]] = {}
        for name, key in keys.items():
            digest = bytes.fromhex(key.sha256)
            expires = float("inf") if key.expires is None else key.expires.timestamp()
            known = _Known(digest, Identity(key.tenant, name), expires)
            self._by_index.setdefault(digest[:_INDEX], []).append(known)

    def identify(self, secret: str | None, now: datetime) -> Identity | None:
        """Whose key it is; None when it is nobody's, or not any more."""
        if self.is_open:
            return ANYONE
        if not secret:
            return None
        digest = sha256(secret)
        found = None
        for known in self._by_index.get(digest[:_INDEX], ()):
            if hmac.compare_digest(known.digest, digest):
                found = known
        if found is None or found.expires <= now.timestamp():
            return None
        return found.identity
