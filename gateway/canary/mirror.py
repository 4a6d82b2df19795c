"""Shadow traffic: a request goes to the new group once more, and nobody gets that answer.

It is a ticket of its own, so it takes a slot like any other; it waits a second for one at most, and
whatever becomes of it, the client's own request does not notice.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic

from backends.errors import BackendError
from backends.lifecycle import FAILED_STATUSES
from backends.stream import Stream
from gateway.errors import ClientError, EngineBusy, Rejected
from gateway.gate import Gate
from scheduler.model import Ticket

log = logging.getLogger("forebay.canary")

PATIENCE = 1.0
PRIORITY = -100
SUFFIX = "-mirror"


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Where the answer goes."""

    def write(self, data: bytes, /) -> None:
        """Nobody reads it."""


def ticket_for(original: Ticket, avoid: frozenset[str]) -> Ticket:
    """The ticket of the copy; its tenant does not pay for it."""
    return replace(
        original,
        id=original.id + SUFFIX,
        tenant="",
        session="",
        avoid=avoid,
        priority=PRIORITY,
        deadline=monotonic() + PATIENCE,
        answer_by=None,
    )


async def mirror(
    gate: Gate, ticket: Ticket, open_: Callable[[str], Awaitable[Stream]], *, streams: bool
) -> None:
    """Send the copy, and let its answer go by."""
    try:
        with await gate.admit(ticket) as permit:
            stream = await open_(permit.backend)
            if streams:
                permit.first_token()
            if stream.status in FAILED_STATUSES:
                permit.failed()
            await stream.relay(Nowhere())
    except (BackendError, EngineBusy, Rejected, ClientError) as error:
        log.debug("the copy of a request failed: %s", error)
