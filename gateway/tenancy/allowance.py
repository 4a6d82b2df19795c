"""What a client is told of its limits, and how it is refused: the types and their headers."""

import math
from dataclasses import dataclass

from gateway.tenancy.account import View, duration

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of the tenant whose ticket this is, after it was counted."""

    ticket_id: str
    requests: View | None = None
    tokens: View | None = None

    def headers(self) -> Headers:
        """As OpenAI sends them."""
        found: Headers = []
        for name, view in ((b"requests", self.requests), (b"tokens", self.tokens)):
            if view is not None:
                found += [
                    (b"x-ratelimit-limit-" + name, b"%d" % view.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % view.remaining),
                    (b"x-ratelimit-reset-" + name, duration(view.reset).encode()),
                ]
        return found


@dataclass(frozen=True, slots=True)
class Mirror:
    """The request is to be sent once more, to backends other than those `avoid`ed, and that answer
    is nobody's."""

    ticket_id: str
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The ticket is over its tenant's limits, or not allowed at all. `retry_after` is in seconds;
    None: trying again is of no use."""

    ticket_id: str
    status: int
    code: str
    message: str
    retry_after: float | None = None
    allowance: Allowance | None = None

    def headers(self) -> Headers:
        """Besides `Retry-After`, which every refusal with a time has."""
        found = [] if self.allowance is None else self.allowance.headers()
        if self.retry_after is None and self.status == 429:
            found.append((b"x-should-retry", b"false"))
        return found


def too_large(limit: int, asked: int, what: str) -> str:
    return f"the request needs {asked} {what}, more than the limit of {limit} in any minute"


def seconds(wait: float) -> int:
    """Whole seconds, for a sentence."""
    return max(1, math.ceil(wait))
