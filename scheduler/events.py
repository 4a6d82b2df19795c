"""The scheduler's only border: events in, commands out.

Each command names the event that caused it (`cause`), so that a request's story can be told
from the log alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scheduler.model import Backend, Settings, Ticket


@dataclass(frozen=True, slots=True)
class Arrived:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first byte of the answer's body came; the prompt is prefilled."""

    ticket_id: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The answer has `tokens` tokens so far, the first one included.

    One report, just before the end, is enough to learn how fast a backend decodes.
    """

    ticket_id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    ticket_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The backend failed the dispatched ticket. A retry is a new ticket.

    `busy` says that the engine refused it for its load (a 503 from vLLM): not dead, but full.
    """

    ticket_id: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The client left, queued or dispatched."""

    ticket_id: str


@dataclass(frozen=True, slots=True)
class BackendChanged:
    """A backend is new or differs from before in any field."""

    backend: Backend


@dataclass(frozen=True, slots=True)
class BackendRemoved:
    """A backend is gone. What it has in flight goes on, unless `cancel` is set."""

    name: str
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """A scrape of the engine's own metrics. Shares are 0..1, counts are requests."""

    backend: str
    running: int
    waiting: int
    kv_usage: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    settings: Settings


@dataclass(frozen=True, slots=True)
class Drain:
    """Take nothing new; what is queued is rejected, what is in flight may finish."""


@dataclass(frozen=True, slots=True)
class Woke:
    """The time asked for by WakeAt has come."""


Event = (
    Arrived
    | FirstToken
    | Progress
    | Finished
    | Failed
    | Abandoned
    | BackendChanged
    | BackendRemoved
    | LoadSeen
    | SettingsChanged
    | Drain
    | Woke
)


CAUSES: Mapping[type[Event], Callable[[Any], str]] = {
    Arrived: lambda e: f"arrived:{e.ticket.id}",
    FirstToken: lambda e: f"first_token:{e.ticket_id}",
    Progress: lambda e: f"progress:{e.ticket_id}",
    Finished: lambda e: f"finished:{e.ticket_id}",
    Failed: lambda e: f"failed:{e.ticket_id}",
    Abandoned: lambda e: f"abandoned:{e.ticket_id}",
    BackendChanged: lambda e: f"backend_changed:{e.backend.name}",
    BackendRemoved: lambda e: f"backend_removed:{e.name}",
    LoadSeen: lambda e: f"load_seen:{e.backend}",
    SettingsChanged: lambda e: "settings_changed",
    Drain: lambda e: "drain",
    Woke: lambda e: "woke",
}
"""An event's id as commands carry it: its kind, and whom it is about where it is about one."""


class Reason(Enum):
    """Why a ticket was rejected."""

    QUEUE_FULL = "queue_full"
    TENANT_QUEUE_FULL = "tenant_queue_full"
    EXPIRED = "expired"
    NO_BACKEND = "no_backend"
    UNKNOWN_MODEL = "unknown_model"
    DRAINING = "draining"


@dataclass(slots=True)
class Dispatch:
    """Send the ticket to the backend; the slot is taken until Finished, Failed or Abandoned.

    Not frozen, because each request needs one, which would take four times as long to make. The
    scheduler keeps none that it has handed out: what a caller did to one would reach nobody else.
    """

    ticket_id: str
    backend: str
    service_class: str
    cause: str


@dataclass(frozen=True, slots=True)
class Reject:
    """`retry_after` is in seconds, computed from the queue and its drain rate, at most 120."""

    ticket_id: str
    reason: Reason
    retry_after: float
    service_class: str
    cause: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the dispatched ticket: its backend was removed or its time is over."""

    ticket_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `Woke` at this time; replaces any earlier WakeAt."""

    at: float
    cause: str


@dataclass(frozen=True, slots=True)
class Decided:
    """An entry for the decision log: a pool's effective limit changed, and why."""

    pool: str
    what: str
    before: int
    after: int
    cause: str


Command = Dispatch | Reject | Cancel | WakeAt | Decided
