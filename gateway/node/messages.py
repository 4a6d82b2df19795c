"""What brain and relay processes say to each other; each function is one border type on the wire.

Hot messages are flat arrays in the order of the type's fields; rare ones go through pydantic.
"""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from pydantic import TypeAdapter

from gateway.directory import Row
from gateway.gate import Answer, Report
from gateway.tenancy.allowance import Allowance, Mirror, Refused
from gateway.tenancy.config import KeyConfig
from scheduler.events import (
    Abandoned,
    Cancel,
    Dispatch,
    Failed,
    Finished,
    FirstToken,
    Progress,
    Reason,
    Reject,
)
from scheduler.model import Ticket
from tokenizer_pool.types import PoolReport

ROW = TypeAdapter(Row)
REPORT = TypeAdapter(PoolReport)
KEYS = TypeAdapter(dict[str, KeyConfig])
_ALLOWANCE = TypeAdapter(Allowance)
_REFUSED = TypeAdapter(Refused)

_TICKET = tuple(field.name for field in fields(Ticket))
_ticket_values = attrgetter(*_TICKET)
_AVOID, _PREFIX = _TICKET.index("avoid"), _TICKET.index("prefix")
_REPORTS: dict[str, type[Report]] = {
    kind.__name__: kind for kind in (FirstToken, Progress, Finished, Failed, Abandoned)
}
_report_values = {kind: tuple(f.name for f in fields(kind)) for kind in _REPORTS.values()}


def ticket_to_wire(ticket: Ticket) -> list[Any]:
    values = list(_ticket_values(ticket))
    values[_AVOID] = list(values[_AVOID])
    return values


def ticket_from_wire(values: Sequence[Any]) -> Ticket:
    known = list(values)
    known[_AVOID] = frozenset(known[_AVOID])
    known[_PREFIX] = tuple(known[_PREFIX])
    return Ticket(*known)


def report_to_wire(event: Report) -> list[Any]:
    kind = type(event)
    return [kind.__name__, *(getattr(event, name) for name in _report_values[kind])]


def report_from_wire(values: Sequence[Any]) -> Report:
    kind, *rest = values
    return _REPORTS[kind](*rest)


def answer_to_wire(answer: Answer) -> list[Any]:
    """A whole message. The cause stays behind, with the decision log that it is for."""
    match answer:
        case Dispatch():
            return ["answer", "dispatch", answer.ticket_id, answer.backend, answer.service_class]
        case Reject():
            reason = answer.reason.value
            return [
                "answer",
                "reject",
                answer.ticket_id,
                reason,
                answer.retry_after,
                answer.service_class,
            ]
        case Cancel():
            return ["answer", "cancel", answer.ticket_id]
        case Allowance():
            return ["answer", "allowance", answer.ticket_id, _ALLOWANCE.dump_python(answer)]
        case Mirror():
            return ["answer", "mirror", answer.ticket_id, list(answer.avoid)]
        case Refused():
            return ["answer", "refused", answer.ticket_id, _REFUSED.dump_python(answer)]


def answer_from_wire(values: Sequence[Any]) -> Answer:
    kind, ticket_id, *rest = values
    if kind == "dispatch":
        backend, service_class = rest
        return Dispatch(ticket_id, backend, service_class, cause="")
    if kind == "reject":
        reason, retry_after, service_class = rest
        return Reject(ticket_id, Reason(reason), retry_after, service_class, cause="")
    if kind == "allowance":
        return _ALLOWANCE.validate_python(*rest)
    if kind == "mirror":
        return Mirror(ticket_id, frozenset(*rest))
    if kind == "refused":
        return _REFUSED.validate_python(*rest)
    return Cancel(ticket_id, cause="")
