"""Which of several backends with room gets a ticket."""

from collections.abc import Iterable

from scheduler.fleet import Member
from scheduler.model import Ticket


def predicted_prefill(member: Member, ticket: Ticket) -> float:
    """Seconds until the backend would have prefilled the ticket behind its backlog."""
    return (member.prefill_backlog + ticket.prompt_tokens) / member.backend.prefill_rate


def best(members: Iterable[Member], ticket: Ticket) -> Member | None:
    """The least predicted time to first token, scaled by weight; then load; then the name."""
    return min(
        members,
        key=lambda m: (
            predicted_prefill(m, ticket) / m.backend.weight,
            m.in_flight / m.backend.weight,
            m.backend.name,
        ),
        default=None,
    )
