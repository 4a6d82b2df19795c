"""Tickets whose model only stands for what a backend holds, like the fetch of a stored response.

Such a request has no prompt and asks nothing of a model: what a tenant or the operator says of
models and of classes of prompts is not said of it. Its ticket is marked by a prefix that no prompt
has, for hashes are not negative; the scheduler finds it in no cache.
"""

from typing import Final

from scheduler.model import Ticket

STAND_IN: Final = (-1,)


def stands_in(ticket: Ticket) -> bool:
    return ticket.prefix == STAND_IN
