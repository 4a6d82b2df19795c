"""Where requests wait for a backend, and the permits that they leave with.

A ticket goes to the brain, which answers with a dispatch or a rejection, at once or later. The
brain may live in this process (`driver`) or in another one (`node.remote`): nothing here knows.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.errors import ClientError, EngineBusy, Rejected
from gateway.tenancy.allowance import Allowance, Mirror, Refused
from scheduler.events import (
    Abandoned,
    Cancel,
    Dispatch,
    Failed,
    Finished,
    FirstToken,
    Progress,
    Reject,
)
from scheduler.model import Ticket

Answer = Dispatch | Reject | Cancel | Refused | Allowance | Mirror
Report = FirstToken | Progress | Finished | Failed | Abandoned


class Admitter(Protocol):
    """The scheduler as the request path sees it.

    `answer` is called with one Dispatch, Reject or Refused, perhaps before `submit` returns; with
    an Allowance or a Mirror before that where there is one; and with Cancel at any time after a
    Dispatch; never again once the ticket was reported ended.
    """

    def submit(self, ticket: Ticket, answer: Callable[[Answer], None]) -> None: ...

    def report(self, event: Report) -> None: ...


class Permit:
    """The right to use one slot of one backend; released exactly once, in a `finally`.

    As a context manager it reports how the block ended: Finished when nothing was raised,
    Abandoned on cancellation, Failed on any other error.
    """

    __slots__ = (
        "_brain",
        "_failed",
        "_released",
        "allowance",
        "backend",
        "mirror",
        "service_class",
        "ticket_id",
    )

    def __init__(self, brain: Admitter, dispatch: Dispatch) -> None:
        self._brain = brain
        self.allowance: Allowance | None = None
        self.mirror: Mirror | None = None
        self._failed = self._released = False
        self.ticket_id = dispatch.ticket_id
        self.backend = dispatch.backend
        self.service_class = dispatch.service_class

    def first_token(self) -> None:
        self._brain.report(FirstToken(self.ticket_id))

    def failed(self) -> None:
        """The backend's answer is an error of its own, which the client gets as it is."""
        self._failed = True

    def answered(self, tokens: int) -> None:
        """The whole answer has so many tokens."""
        self._brain.report(Progress(self.ticket_id, tokens))

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._released:
            raise RuntimeError(f"the permit of ticket {self.ticket_id} was released twice")
        self._released = True
        end: Finished | Failed | Abandoned
        if kind is None and not self._failed:
            end = Finished(self.ticket_id)
        elif kind is not None and issubclass(kind, asyncio.CancelledError):
            end = Abandoned(self.ticket_id)
        else:
            end = Failed(self.ticket_id, busy=kind is not None and issubclass(kind, EngineBusy))
        self._brain.report(end)


class _Wait:
    """One ticket's wait; a future is made only for a ticket that is not answered at once."""

    __slots__ = ("allowance", "answer", "mirror", "task", "waiter")

    def __init__(self, task: "asyncio.Task[object] | None") -> None:
        self.task = task
        self.answer: Dispatch | Reject | Refused | None = None
        self.allowance: Allowance | None = None
        self.mirror: Mirror | None = None
        self.waiter: asyncio.Future[None] | None = None

    def __call__(self, answer: Answer) -> None:
        if isinstance(answer, Allowance):
            self.allowance = answer
        elif isinstance(answer, Mirror):
            self.mirror = answer
        elif not isinstance(answer, Cancel):
            self.answer = answer
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
        elif self.task is not None:
            self.task.cancel()


class Gate:
    """Lets a request through when the brain says where to."""

    def __init__(self, brain: Admitter) -> None:
        self._brain = brain
        self._loop = asyncio.get_running_loop()

    async def admit(self, ticket: Ticket, task: "asyncio.Task[None] | None" = None) -> Permit:
        """Wait for a backend. Raises Rejected, or ClientError for a ticket over its limits;
        cancelling takes the ticket out of the queue.

        `task` is the one that runs, where the caller knows it anyway.
        """
        wait = _Wait(task or asyncio.current_task())
        self._brain.submit(ticket, wait)
        if wait.answer is None:
            wait.waiter = self._loop.create_future()
            try:
                await wait.waiter
            except asyncio.CancelledError:
                # Also when it was answered in this very turn of the loop: the slot goes back.
                self._brain.report(Abandoned(ticket.id))
                raise
        answer = wait.answer
        if isinstance(answer, Dispatch):
            permit = Permit(self._brain, answer)
            permit.allowance, permit.mirror = wait.allowance, wait.mirror
            return permit
        assert answer is not None, "a waiter is only woken by an answer"
        if isinstance(answer, Refused):
            raise _client_error(answer)
        raise Rejected(answer.reason, answer.service_class, answer.retry_after)


def _client_error(refused: Refused) -> ClientError:
    error = ClientError(
        refused.status, refused.message, code=refused.code, retry_after=refused.retry_after
    )
    return error.carrying(refused.headers())
